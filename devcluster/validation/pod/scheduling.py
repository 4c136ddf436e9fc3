"""Validation of a pod's scheduling fields: affinity, topology spread, tolerations, preemption policy.

Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubeloop.devcluster.validation.common.error_list import (
    NOT_POSITIVE,
    ErrorList,
    validate_label_selector,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import dns_label, dns_subdomain, label_value, qualified_name
from kubeloop.kube.values.integers import parse_integer

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_DECIMAL_INTEGER = re.compile("0|-?[1-9][0-9]*")
_GO_INTEGER = re.compile("[+-]?[0-9]+")
_NO_DECIMAL_INTEGER = "must be a valid decimal integer in canonical form"
_INVALID_OPERATOR = "not a valid selector operator"


def validate_preemption_policy(errors: ErrorList, path: str, policy: str | None) -> None:
    if policy == "":
        errors.required(path)
    else:
        errors.one_of(path, policy, ("PreemptLowerPriority", "Never"))


def validate_tolerations(errors: ErrorList, path: str, tolerations: Sequence[JSON]) -> None:
    for i, toleration in enumerate(tolerations):
        where = f"{path}[{i}]"
        key, operator, effect = toleration.get("key", ""), toleration.get("operator", ""), toleration.get("effect", "")
        value = toleration.get("value", "")
        if key:
            errors.check(f"{where}.key", key, qualified_name)
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errors.invalid(f"{where}.operator", operator, detail)
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            errors.invalid(f"{where}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator in ("", "Equal"):
            if problems := label_value(value):
                errors.invalid(f"{where}.operator", value, ";".join(problems))
        elif operator == "Exists":
            if value:
                errors.invalid(f"{where}.operator", value, "value must be empty when `operator` is 'Exists'")
        elif operator in ("Lt", "Gt") and errors.gates.enabled("TaintTolerationComparisonOperators"):
            _validate_compared_value(errors, f"{where}.value", value)
        else:
            operators = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
            errors.not_supported(f"{where}.operator", operator, operators)
        errors.one_of(f"{where}.effect", effect or None, TAINT_EFFECTS)


def _validate_compared_value(errors: ErrorList, path: str, value: str) -> None:
    """Validate the value of a toleration with the operator Lt or Gt: an integer of 64 bits."""
    if not _DECIMAL_INTEGER.fullmatch(value):
        errors.invalid(path, value, _NO_DECIMAL_INTEGER if value else "must be non-empty")
    if not _GO_INTEGER.fullmatch(value):
        errors.invalid(path, value, f"strconv.ParseInt: parsing {quoted(value)}: invalid syntax")
    elif not -1 << 63 <= parse_integer(value) < 1 << 63:
        errors.invalid(path, value, f"strconv.ParseInt: parsing {quoted(value)}: value out of range")


def _validate_node_requirement(errors: ErrorList, path: str, requirement: JSON, *, check_values: bool) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values", ())
    if operator in ("In", "NotIn"):
        errors.require(f"{path}.values", values, "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            errors.forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            errors.required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        errors.invalid(f"{path}.operator", operator, _INVALID_OPERATOR)
    errors.check(f"{path}.key", requirement.get("key", ""), qualified_name)
    if check_values:
        for i, value in enumerate(values):
            errors.check(f"{path}.values[{i}]", value, label_value)


def _validate_node_field_requirement(errors: ErrorList, path: str, requirement: JSON) -> None:
    operator, values, key = requirement.get("operator", ""), requirement.get("values", ()), requirement.get("key", "")
    if operator not in ("In", "NotIn"):
        errors.invalid(f"{path}.operator", operator, _INVALID_OPERATOR)
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.required(f"{path}.values", detail)
    if key != "metadata.name":
        errors.invalid(f"{path}.key", key, "not a valid field selector key")
    else:
        for i, value in enumerate(values):
            errors.check(f"{path}.values[{i}]", value, dns_subdomain)


def _validate_node_term(errors: ErrorList, path: str, term: JSON, *, check_values: bool) -> None:
    for i, match_expression in enumerate(term.get("matchExpressions", ())):
        _validate_node_requirement(errors, f"{path}.matchExpressions[{i}]", match_expression, check_values=check_values)
    for i, match_field in enumerate(term.get("matchFields", ())):
        _validate_node_field_requirement(errors, f"{path}.matchFields[{i}]", match_field)


def validate_node_selector(errors: ErrorList, path: str, selector: JSON) -> None:
    terms = selector.get("nodeSelectorTerms") or ()
    errors.require(f"{path}.nodeSelectorTerms", terms, "must have at least one node selector term")
    for i, term in enumerate(terms):
        _validate_node_term(errors, f"{path}.nodeSelectorTerms[{i}]", term, check_values=True)


def _validate_pod_term(errors: ErrorList, path: str, term: JSON) -> None:
    validate_label_selector(errors, f"{path}.labelSelector", term.get("labelSelector"))
    validate_label_selector(errors, f"{path}.namespaceSelector", term.get("namespaceSelector"))
    for name in term.get("namespaces", ()):
        errors.check(f"{path}.namespace", name, dns_label)
    _validate_match_label_keys(errors, path, term)
    errors.require(f"{path}.topologyKey", term.get("topologyKey"), "can not be empty")
    errors.check(f"{path}.topologyKey", term.get("topologyKey", ""), qualified_name)


def _validate_match_label_keys(errors: ErrorList, path: str, term: JSON) -> None:
    match, mismatch = term.get("matchLabelKeys", ()), term.get("mismatchLabelKeys", ())
    for name, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        _validate_label_keys(errors, f"{path}.{name}", keys, term)
    _validate_keys_not_in_selector(errors, path, match, term)
    for i, key in enumerate(match):
        if key in mismatch:
            errors.invalid(f"{path}.matchLabelKeys[{i}]", key, "exists in both matchLabelKeys and mismatchLabelKeys")


def _merges_keys(errors: ErrorList) -> bool:
    """Return True if the server merges matchLabelKeys of spread constraints into their selectors."""
    gates = errors.gates
    return gates.enabled("MatchLabelKeysInPodTopologySpread") and gates.enabled(
        "MatchLabelKeysInPodTopologySpreadSelectorMerge"
    )


def _validate_unmerged_keys(errors: ErrorList, path: str, constraint: JSON) -> None:
    """Validate the matchLabelKeys of a spread constraint that are not merged: its selector may not have the same."""
    keys, selector = constraint.get("matchLabelKeys", ()), constraint.get("labelSelector")
    if keys and selector is None:
        errors.forbidden(path, "must not be specified when labelSelector is not set")
    selector = selector or {}
    selected = {*selector.get("matchLabels", ()), *(e.get("key", "") for e in selector.get("matchExpressions", ()))}
    for i, key in enumerate(keys):
        errors.check(f"{path}[{i}]", key, qualified_name)
        if key in selected:
            errors.invalid(f"{path}[{i}]", key, "exists in both matchLabelKeys and labelSelector")


def violates_unmerged_keys(constraint: JSON) -> bool:
    """Return True for a spread constraint that is invalid unless matchLabelKeys are merged into its selector."""
    errors = ErrorList()
    _validate_unmerged_keys(errors, "", constraint)
    return bool(errors)


def _validate_label_keys(errors: ErrorList, path: str, keys: Sequence[str], term: JSON) -> None:
    if keys and term.get("labelSelector") is None:
        errors.forbidden(path, "must not be specified when labelSelector is not set")
        return
    for i, key in enumerate(keys):
        errors.check(f"{path}[{i}]", key, qualified_name)


def _validate_keys_not_in_selector(errors: ErrorList, path: str, keys: Sequence[str], term: JSON) -> None:
    """Reject a selector with a requirement for a key that is also in matchLabelKeys.

    The server has merged one requirement for each key into the selector; a second one is the client's.
    """
    selector = term.get("labelSelector") or {}
    seen = set(selector.get("matchLabels", ()))
    for requirement in selector.get("matchExpressions", ()):
        key = requirement.get("key", "")
        if key in keys and key in seen:
            last_index = len(keys) - 1 - list(reversed(keys)).index(key)
            errors.invalid(f"{path}[{last_index}]", key, "exists in both matchLabelKeys and labelSelector")
        seen.add(key)


def _validate_weight(errors: ErrorList, path: str, weight: int) -> None:
    if not 0 < weight <= 100:
        errors.invalid(f"{path}.weight", weight, "must be in the range 1-100")


def validate_affinity(errors: ErrorList, path: str, affinity: JSON) -> None:
    node = affinity.get("nodeAffinity")
    if node is not None:
        where = f"{path}.nodeAffinity"
        if node.get(_REQUIRED) is not None:
            validate_node_selector(errors, f"{where}.{_REQUIRED}", node[_REQUIRED])
        for i, term in enumerate(node.get(_PREFERRED, ())):
            _validate_weight(errors, f"{where}.{_PREFERRED}[{i}]", term.get("weight", 0))
            _validate_node_term(
                errors, f"{where}.{_PREFERRED}[{i}].preference", term.get("preference", {}), check_values=False
            )
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind)
        if pods is None:
            continue
        where = f"{path}.{kind}"
        for i, term in enumerate(pods.get(_REQUIRED, ())):
            _validate_pod_term(errors, f"{where}.{_REQUIRED}[{i}]", term)
        for i, term in enumerate(pods.get(_PREFERRED, ())):
            _validate_weight(errors, f"{where}.{_PREFERRED}[{i}]", term.get("weight", 0))
            _validate_pod_term(errors, f"{where}.{_PREFERRED}[{i}].podAffinityTerm", term.get("podAffinityTerm", {}))


def validate_topology_spread(errors: ErrorList, path: str, constraints: Sequence[JSON]) -> None:
    unsatisfiable = ("DoNotSchedule", "ScheduleAnyway")
    for i, constraint in enumerate(constraints):
        where = f"{path}[{i}]"
        key, action = constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")
        if constraint.get("maxSkew", 0) <= 0:
            errors.invalid(f"{where}.maxSkew", constraint.get("maxSkew", 0), NOT_POSITIVE)
        errors.require(f"{where}.topologyKey", key, "can not be empty")
        errors.one_of(f"{where}.whenUnsatisfiable", action, unsatisfiable)
        for other in constraints[i + 1 :]:
            if (other.get("topologyKey", ""), other.get("whenUnsatisfiable", "")) == (key, action):
                errors.duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}")
                break
        min_domains = constraint.get("minDomains")
        if min_domains is not None:
            if min_domains <= 0:
                errors.invalid(f"{where}.minDomains", min_domains, NOT_POSITIVE)
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                errors.invalid(f"{where}.minDomains", min_domains, detail)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            errors.one_of(f"{where}.{name}", constraint.get(name), ("Honor", "Ignore"))
        if _merges_keys(errors):
            _validate_match_label_keys(errors, where, constraint)
        else:
            _validate_unmerged_keys(errors, f"{where}.matchLabelKeys", constraint)
        validate_label_selector(errors, f"{where}.labelSelector", constraint.get("labelSelector"))
