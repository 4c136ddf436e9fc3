"""MutatingAdmissionPolicies. Source: pkg/apis/admissionregistration/validation of Kubernetes v1.36."""

from __future__ import annotations

from dataclasses import replace

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.admissionregistration.parameter_access import check_param_kind
from kubeloop.devcluster.kinds.admissionregistration.policies import (
    MUTABLE_OPERATIONS,
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
from kubeloop.kube.json_object import JSON

_PATCHES = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}

_REINVOCATIONS = ("IfNeeded", "Never")


def _validate_mutation(errors: ErrorList, path: str, mutation: JSON, expressions: Expressions) -> None:
    patch_type = mutation.get("patchType", "")
    if not errors.require(f"{path}.patchType", patch_type):
        return
    if patch_type not in _PATCHES:
        errors.not_supported(f"{path}.patchType", patch_type, _PATCHES)
        return
    patch_field = _PATCHES[patch_type]
    other_field = next(patch for patch in _PATCHES.values() if patch != patch_field)
    if mutation.get(patch_field) is None:
        errors.required(f"{path}.{patch_field}", f"must be specified when patchType is {patch_type}")
    else:
        _validate_patch(
            errors,
            f"{path}.{patch_field}.expression",
            mutation[patch_field].get("expression", "").strip(),
            patch_type,
            expressions,
        )
    if mutation.get(other_field) is not None:
        errors.invalid(
            f"{path}.{other_field}", f"{{{other_field}}}", f"must not be specified when patchType is {patch_type}"
        )


def _validate_patch(errors: ErrorList, path: str, text: str, patch_type: str, expressions: Expressions) -> None:
    from kubeloop.devcluster.languages.mutation_objects import (
        APPLY_CONFIGURATION_RESULT,
        JSON_PATCH_RESULT,
        MUTATION_LIBRARY,
    )

    if not errors.require(path, text):
        return
    environment = replace(expressions.environment, library=MUTATION_LIBRARY)
    report_compile_errors(
        errors,
        path,
        environment.compile(text, JSON_PATCH_RESULT if patch_type == "JSONPatch" else APPLY_CONFIGURATION_RESULT),
    )


def validate_mutating_policy(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    expressions = Expressions(spec, composed=True)
    validate_policy_spec(errors, spec, old, expressions, MUTABLE_OPERATIONS)
    mutations = spec.get("mutations") or ()
    errors.require("spec.mutations", mutations, "mutations must contain at least one item")
    for index, mutation in enumerate(mutations):
        _validate_mutation(errors, f"spec.mutations[{index}]", mutation, expressions)
    validate_enum(errors, "spec.reinvocationPolicy", spec.get("reinvocationPolicy") or None, _REINVOCATIONS)


STRATEGY = Strategy(
    default=default_policy,
    validate=validate_mutating_policy,
    validate_update=validate_mutating_policy,
    check_access=check_param_kind,
    core_finalizers=False,
    update_steps="ws",
    warnings=static_name_warnings,
    cells=row(number_of("spec.mutations"), param_kind, AGE),
)
