"""Admission policies and their bindings: match resources, parameters, expressions.

Expressions are compiled as they will be for requests; CEL is imported for the first of them only. Source:
pkg/apis/admissionregistration/validation of Kubernetes v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from kubeloop.devcluster.printers.formatting import UNSET, spec_of
from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_label_selector
from kubeloop.devcluster.validation.common.object_meta import path_segment
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_1035_label, dns_subdomain, qualified_name

if TYPE_CHECKING:
    from kubeloop.kube.policy_cel.environment import Environment, Expression


_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
MUTABLE_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")
FAILURE_POLICIES, MATCH_POLICIES = ("Fail", "Ignore"), ("Equivalent", "Exact")
_SCOPES = ("*", "Cluster", "Namespaced")
_MAX_CONDITIONS = 64
_IDENTIFIER = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")


# --- match resources --------------------------------------------------------------------------------------------------


def _validate_wildcard_alone(errors: ErrorList, path: str, values: Sequence[str], noun: str) -> None:
    if len(values) > 1 and "*" in values:
        errors.invalid(path, values, f"if '*' is present, must not specify other {noun}")


def validate_enum(errors: ErrorList, path: str, value: str | None, supported: Sequence[str]) -> None:
    if value is None:
        errors.required(path)
    elif value not in supported:
        errors.not_supported(path, value, supported)


def validate_match_resources(errors: ErrorList, path: str, match: JSON) -> None:
    validate_enum(errors, f"{path}.matchPolicy", match.get("matchPolicy"), MATCH_POLICIES)
    for name in ("namespaceSelector", "objectSelector"):
        validate_label_selector(errors, f"{path}.{name}", match[name])
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(name) or ()):
            _validate_match_rule(errors, f"{path}.{name}[{index}]", rule)


def _validate_match_rule(errors: ErrorList, path: str, rule: JSON) -> None:
    """Validate a rule with resource names."""
    seen: set[str] = set()
    for index, name in enumerate(rule.get("resourceNames") or ()):
        errors.check(f"{path}.resourceNames[{index}]", name, path_segment)
        errors.unique(f"{path}.resourceNames[{index}]", name, seen)
    validate_rule(errors, path, rule)


def validate_rule(errors: ErrorList, path: str, rule: JSON) -> None:
    """Validate a rule of a policy or webhook."""
    operations, groups = rule.get("operations") or (), rule.get("apiGroups") or ()
    versions = rule.get("apiVersions") or ()
    errors.require(f"{path}.operations", operations)
    _validate_wildcard_alone(errors, f"{path}.operations", operations, "operations")
    for index, operation in enumerate(operations):
        validate_enum(errors, f"{path}.operations[{index}]", operation, _OPERATIONS)
    errors.require(f"{path}.apiGroups", groups)
    _validate_wildcard_alone(errors, f"{path}.apiGroups", groups, "API groups")
    errors.require(f"{path}.apiVersions", versions)
    _validate_wildcard_alone(errors, f"{path}.apiVersions", versions, "API versions")
    for index, version in enumerate(versions):
        errors.require(f"{path}.apiVersions[{index}]", version)
    _validate_rule_resources(errors, f"{path}.resources", rule.get("resources") or ())
    validate_enum(errors, f"{path}.scope", rule.get("scope", "*"), _SCOPES)


def _validate_rule_resources(errors: ErrorList, path: str, resources: Sequence[str]) -> None:
    errors.require(path, resources)
    resources_with_all: set[str] = set()  # "pods" for "pods/*"
    subresources_of_all: set[str] = set()  # "status" for "*/status"
    last_is_resource = False
    for index, entry in enumerate(resources):
        where = f"{path}[{index}]"
        if not errors.require(where, entry):
            continue
        resource, slash, subresource = entry.partition("/")
        if not slash:
            last_is_resource = entry != "*"  # as in Kubernetes, the last entry decides
            continue
        if resource in resources_with_all:
            errors.invalid(where, entry, f"if '{resource}/*' is present, must not specify {entry}")
        if subresource in subresources_of_all:
            errors.invalid(where, entry, f"if '*/{subresource}' is present, must not specify {entry}")
        if subresource == "*":
            resources_with_all.add(resource)
        if resource == "*":
            subresources_of_all.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        errors.invalid(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and last_is_resource:
        detail = "if '*' is present, must not specify other resources without subresources"
        errors.invalid(path, resources, detail)


# --- parameters -------------------------------------------------------------------------------------------------------


def _validate_param_kind(errors: ErrorList, path: str, param_kind: JSON) -> None:
    api_version, kind = param_kind.get("apiVersion", ""), param_kind.get("kind", "")
    where = f"{path}.apiVersion"
    if not api_version:
        errors.required(where)
    elif api_version.count("/") > 1:
        errors.invalid(where, api_version, f"unexpected GroupVersion string: {api_version}")
    else:
        group, _, version = api_version.rpartition("/")
        if group:
            errors.check_joined(where, group, dns_subdomain)
        if version:
            errors.check_joined(where, version, dns_1035_label)
        else:
            errors.invalid(where, api_version, "version must be specified")
    if errors.require(f"{path}.kind", kind) and (problems := dns_1035_label(kind.lower())):
        detail = f"may have mixed case, but should otherwise match: {','.join(problems)}"
        errors.invalid(f"{path}.kind", kind, detail)


def _validate_param_ref(errors: ErrorList, path: str, reference: JSON) -> None:
    name, selector = reference.get("name", ""), reference.get("selector")
    exclusive = "name and selector are mutually exclusive"
    if name:
        errors.check(f"{path}.name", name, path_segment)
        if selector is not None:
            errors.forbidden(f"{path}.name", exclusive)
    if selector is not None:
        validate_label_selector(errors, f"{path}.selector", selector)
        if name:
            errors.forbidden(f"{path}.selector", exclusive)
    if not name and selector is None:
        errors.required(path, "one of name or selector must be specified")
    validate_enum(
        errors, f"{path}.parameterNotFoundAction", reference.get("parameterNotFoundAction") or None, _NOT_FOUND_ACTIONS
    )


_NOT_FOUND_ACTIONS = ("Deny", "Allow")


# --- expressions ------------------------------------------------------------------------------------------------------


class Expressions:
    """Environments in which a policy's expressions are compiled. CEL is imported with the first expression."""

    def __init__(self, spec: JSON, *, composed: bool) -> None:
        self._has_params = spec.get("paramKind") is not None
        self._composed = composed
        self._environment: Environment | None = None

    @property
    def environment(self) -> Environment:
        if self._environment is None:
            self._environment = self.without_variables
            if self._composed:
                self._environment.variable_types = {}
        return self._environment

    @property
    def without_variables(self) -> Environment:
        """Environment without the policy's variables."""
        from kubeloop.kube.policy_cel.environment import Environment

        return Environment(has_params=self._has_params, variable_types=None)


def report_compile_errors(errors: ErrorList, path: str, expression: Expression, shown_text: str = "") -> None:
    if expression.is_valid_expression:
        errors.internal(path, expression.error)
    elif expression.error:
        errors.invalid(path, shown_text or expression.text, expression.error)


def validate_match_conditions(
    errors: ErrorList, path: str, conditions: Sequence[JSON], expressions: Expressions
) -> None:
    seen: set[str] = set()
    errors.at_most(path, conditions, _MAX_CONDITIONS)
    for index, condition in enumerate(conditions):
        where, name, text = f"{path}[{index}]", condition.get("name", ""), condition.get("expression", "").strip()
        if errors.require(f"{where}.expression", text):
            from kubeloop.kube.policy_cel.environment import BOOL_RESULT

            report_compile_errors(
                errors, f"{where}.expression", expressions.without_variables.compile(text, BOOL_RESULT)
            )
        if not errors.require(f"{where}.name", name):
            continue
        errors.check(f"{where}.name", name, qualified_name)
        errors.unique(f"{where}.name", name, seen)


def _validate_variables(errors: ErrorList, path: str, variables: Sequence[JSON], expressions: Expressions) -> None:
    from kubeloop.cel.types import RESERVED

    for index, variable in enumerate(variables):
        where, name, text = f"{path}[{index}]", variable.get("name", ""), variable.get("expression", "")
        if not name.strip():
            errors.required(f"{where}.name", "name is not specified")
        elif not _IDENTIFIER.fullmatch(name) or name in RESERVED:
            errors.invalid(f"{where}.name", name, "must be a valid CEL identifier")
        if errors.require(f"{where}.expression", text.strip(), NOT_SPECIFIED):
            report_compile_errors(errors, f"{where}.expression", expressions.environment.declare(name, text))


NOT_SPECIFIED = "expression is not specified"


def validate_policy_spec(
    errors: ErrorList, spec: JSON, old: JSON | None, expressions: Expressions, operations: Sequence[str] = ()
) -> None:
    """Validate the fields that both kinds of policies have; match conditions if they or their parameters changed.

    old: the stored policy. operations: those that rules may name, () for all.
    """
    validate_enum(errors, "spec.failurePolicy", spec.get("failurePolicy"), FAILURE_POLICIES)
    if spec.get("paramKind") is not None:
        _validate_param_kind(errors, "spec.paramKind", spec["paramKind"])
    match = spec.get("matchConstraints")
    if match is None:
        errors.required("spec.matchConstraints")
    else:
        validate_match_resources(errors, "spec.matchConstraints", match)
        errors.required_fields("spec.matchConstraints", match, "resourceRules")
        validate_rule_operations(errors, "spec.matchConstraints", match, operations)
    if old is None or any(spec.get(name) != old["spec"].get(name) for name in ("paramKind", "matchConditions")):
        validate_match_conditions(errors, "spec.matchConditions", spec.get("matchConditions") or (), expressions)
    _validate_variables(errors, "spec.variables", spec.get("variables") or (), expressions)


def validate_rule_operations(errors: ErrorList, path: str, match: JSON, operations: Sequence[str]) -> None:
    for rule in match.get("resourceRules") or () if operations else ():
        for operation in rule.get("operations") or ():
            validate_enum(errors, f"{path}.resourceRules.operations", operation, operations)


def validate_binding(errors: ErrorList, obj: JSON, operations: Sequence[str] = ()) -> JSON:
    spec: JSON = obj["spec"]
    name = spec.get("policyName", "")
    errors.check_required("spec.policyName", name, dns_subdomain)
    if spec.get("paramRef") is not None:
        _validate_param_ref(errors, "spec.paramRef", spec["paramRef"])
    if spec.get("matchResources") is not None:
        validate_match_resources(errors, "spec.matchResources", spec["matchResources"])
        validate_rule_operations(errors, "spec.matchResources", spec["matchResources"], operations)
    return spec


# --- defaults ---------------------------------------------------------------------------------------------------------


def _default_match_resources(match: JSON | None) -> None:
    if match is None:
        return
    match.setdefault("matchPolicy", "Equivalent")
    match.setdefault("namespaceSelector", {})
    match.setdefault("objectSelector", {})
    for rules in ("resourceRules", "excludeResourceRules"):
        for rule in match.get(rules) or ():
            rule.setdefault("scope", "*")


def default_policy(obj: JSON) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    _default_match_resources(spec.get("matchConstraints"))


def default_binding(obj: JSON) -> None:
    _default_match_resources(obj.setdefault("spec", {}).get("matchResources"))


def _param_reference(reference: JSON | None) -> str:
    """Return the kind or the object of a policy's parameters: "v1/ConfigMap", "default/limits"."""
    if not reference:
        return UNSET
    if "kind" in reference:
        return f"{reference.get('apiVersion', '')}/{reference['kind']}"
    if "name" in reference:
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    return "*"


def param_kind(policy: JSON, _now: datetime) -> str:
    return _param_reference(spec_of(policy).get("paramKind"))


def param_ref(binding: JSON, _now: datetime) -> str:
    return _param_reference(spec_of(binding).get("paramRef"))


_STATIC_SUFFIX = ".static.k8s.io"


def static_name_warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    if obj["metadata"].get("name", "").endswith(_STATIC_SUFFIX):
        detail = "are reserved for static manifest-based configurations and cannot be managed via the API"
        yield f'metadata.name: names ending with "{_STATIC_SUFFIX}" {detail}'
