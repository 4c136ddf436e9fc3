"""ValidatingAdmissionPolicies. Source: pkg/apis/admissionregistration/validation of Kubernetes v1.36."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.admissionregistration.parameter_access import check_param_kind
from kubeloop.devcluster.kinds.admissionregistration.policies import (
    NOT_SPECIFIED,
    Expressions,
    default_policy,
    param_kind,
    report_compile_errors,
    static_name_warnings,
    validate_enum,
    validate_policy_spec,
)
from kubeloop.devcluster.printers.columns import AGE, number_of, row
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.status_conditions import validate_conditions
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import qualified_name

_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")

_MAX_ANNOTATIONS, _MAX_VALUE_BYTES = 20, 5 * 1024


def _validate_validation(errors: ErrorList, path: str, validation: JSON, expressions: Expressions) -> None:
    from kubeloop.kube.policy_cel.environment import BOOL_RESULT, STRING_RESULT

    text, message_expression, message = (
        validation.get(name, "") for name in ("expression", "messageExpression", "message")
    )
    if errors.require(f"{path}.expression", text.strip(), NOT_SPECIFIED):
        report_compile_errors(errors, f"{path}.expression", expressions.environment.compile(text, BOOL_RESULT))
    if message_expression and not message_expression.strip():
        errors.invalid(f"{path}.messageExpression", message_expression, "must be non-empty if specified")
    elif message_expression:
        compiled = expressions.environment.compile(message_expression, STRING_RESULT, authorizer=False)
        report_compile_errors(errors, f"{path}.messageExpression", compiled)
    if message and not message.strip():
        errors.invalid(f"{path}.message", message, "must be non-empty if specified")
    elif re.search(r"[\n\r]", message.strip()):
        errors.invalid(f"{path}.message", message, "must not contain line breaks")
    if validation.get("reason") is not None:
        validate_enum(errors, f"{path}.reason", validation["reason"], _REASONS)


def _validate_audit_annotations(
    errors: ErrorList, path: str, annotations: Sequence[JSON], owner: str, expressions: Expressions
) -> None:
    from kubeloop.kube.policy_cel.environment import STRING_OR_NULL_RESULT

    if len(annotations) > _MAX_ANNOTATIONS:
        detail = f"must not have more than {_MAX_ANNOTATIONS} auditAnnotations"
        errors.invalid(path, annotations, detail, "admissionregistration/v1.AuditAnnotation")
    seen: set[str] = set()
    for index, annotation in enumerate(annotations):
        where, key, text = f"{path}[{index}]", annotation.get("key", ""), annotation.get("valueExpression", "")
        if owner:
            errors.check(f"{where}.key", f"{owner}/{key}", qualified_name)
        else:
            errors.invalid(f"{where}.key", key, "requires metadata.name be non-empty")
        trimmed = text.strip()
        if not trimmed:
            errors.required(f"{where}.valueExpression", "valueExpression is not specified")
        elif len(trimmed.encode()) > _MAX_VALUE_BYTES:
            errors.required(f"{where}.valueExpression", f"must not exceed {_MAX_VALUE_BYTES} bytes in length")
        else:
            compiled = expressions.environment.compile(trimmed, STRING_OR_NULL_RESULT)
            report_compile_errors(errors, f"{where}.valueExpression", compiled, text)
        errors.unique(f"{where}.key", key, seen)


def validate_validating_policy(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    expressions = Expressions(spec, composed=bool(spec.get("variables")))
    validate_policy_spec(errors, spec, old, expressions)
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        detail = "validations or auditAnnotations must contain at least one item"
        errors.required("spec.validations", detail)
        errors.required("spec.auditAnnotations", detail)
    for index, validation in enumerate(validations):
        _validate_validation(errors, f"spec.validations[{index}]", validation, expressions)
    name = obj["metadata"].get("name", "")
    _validate_audit_annotations(errors, "spec.auditAnnotations", annotations, name, expressions)


def validate_validating_policy_status_update(errors: ErrorList, obj: JSON, _old: JSON) -> None:
    status = obj.get("status") or {}
    warnings = (status.get("typeChecking") or {}).get("expressionWarnings") or ()
    for index, warning in enumerate(warnings):
        where = f"status.typeChecking.expressionWarnings[{index}]"
        errors.required_fields(where, warning, "warning")
        errors.require(f"{where}.fieldRef", warning.get("fieldRef", "").strip())
    validate_conditions(errors, "status.conditions", status.get("conditions") or ())


STRATEGY = Strategy(
    default=default_policy,
    status_metadata=(),
    validate=validate_validating_policy,
    validate_update=validate_validating_policy,
    validate_subresources={"status": validate_validating_policy_status_update},
    check_access=check_param_kind,
    core_finalizers=False,
    update_steps="ws",
    subresource_steps="s",
    warnings=static_name_warnings,
    cells=row(number_of("spec.validations"), param_kind, AGE),
)
