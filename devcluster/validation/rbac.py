"""Roles and their bindings. Source: pkg/apis/rbac/validation."""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.field_checks import is_valid_selector, validate_label_selector
from kubeloop.devcluster.validation.common.object_meta import path_segment
from kubeloop.kube.json_object import JSON
from kubeloop.kube.name_checks import dns_subdomain


def validate_role(errors: ErrorList, obj: JSON) -> None:
    _validate_rules(errors, obj, namespaced=True)


def validate_cluster_role(errors: ErrorList, obj: JSON) -> None:
    _validate_rules(errors, obj, namespaced=False)
    aggregation = obj.get("aggregationRule")
    if aggregation is not None:
        selectors = aggregation.get("clusterRoleSelectors", ())
        if not selectors:
            errors.required("aggregationRule.clusterRoleSelectors", f"{_SELECTORS} if aggregationRule is non-nil")
        for i, selector in enumerate(selectors):
            where = f"aggregationRule.clusterRoleSelectors[{i}]"
            validate_label_selector(errors, where, selector)
            if not is_valid_selector(selector):
                errors.invalid(where, None, "invalid label selector.")


_SELECTORS = "at least one clusterRoleSelector required"


def _validate_rules(errors: ErrorList, obj: JSON, *, namespaced: bool) -> None:
    """Source: rbac validation.ValidatePolicyRule."""
    for i, rule in enumerate(obj.get("rules") or ()):
        where = f"rules[{i}]"
        groups, resources, urls = (rule.get(name) for name in ("apiGroups", "resources", "nonResourceURLs"))
        if not rule.get("verbs"):
            errors.required(f"{where}.verbs", "verbs must contain at least one value")
        if urls:
            if namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                errors.invalid(f"{where}.nonResourceURLs", urls, detail)
            if groups or resources or rule.get("resourceNames"):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                errors.invalid(f"{where}.nonResourceURLs", urls, detail)
            continue
        if not groups:
            errors.required(f"{where}.apiGroups", "resource rules must supply at least one api group")
        if not resources:
            errors.required(f"{where}.resources", "resource rules must supply at least one resource")


def validate_role_binding(errors: ErrorList, obj: JSON) -> None:
    _validate_binding(errors, obj, ("Role", "ClusterRole"))


def validate_cluster_role_binding(errors: ErrorList, obj: JSON) -> None:
    _validate_binding(errors, obj, ("ClusterRole",))


_RBAC = "rbac.authorization.k8s.io"


def _validate_binding(errors: ErrorList, obj: JSON, kinds: Sequence[str]) -> None:
    reference = obj.get("roleRef", {})
    if reference.get("apiGroup", "") != _RBAC:
        errors.not_supported("roleRef.apiGroup", reference.get("apiGroup", ""), (_RBAC,))
    if reference.get("kind", "") not in kinds:
        errors.not_supported("roleRef.kind", reference.get("kind", ""), kinds)
    if name := reference.get("name", ""):
        errors.invalid_each("roleRef.name", name, path_segment(name))
    else:
        errors.required("roleRef.name")
    for i, subject in enumerate(obj.get("subjects", ())):
        _validate_subject(errors, f"subjects[{i}]", subject, namespaced=len(kinds) > 1)


def _validate_subject(errors: ErrorList, where: str, subject: JSON, *, namespaced: bool) -> None:
    name, kind, group = (subject.get(field, "") for field in ("name", "kind", "apiGroup"))
    if not name:
        errors.required(f"{where}.name")
    if kind == "ServiceAccount":
        if name:
            errors.invalid_each(f"{where}.name", name, dns_subdomain(name))
        if group:
            errors.not_supported(f"{where}.apiGroup", group, ("",))
        if not namespaced and not subject.get("namespace"):
            errors.required(f"{where}.namespace")
    elif kind in ("User", "Group"):
        if group != _RBAC:
            errors.not_supported(f"{where}.apiGroup", group, (_RBAC,))
    else:
        errors.not_supported(f"{where}.kind", kind, ("ServiceAccount", "User", "Group"))


def validate_role_binding_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    validate_role_binding(errors, obj)
    _validate_same_role(errors, obj, old)


def validate_cluster_role_binding_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    validate_cluster_role_binding(errors, obj)
    _validate_same_role(errors, obj, old)


def _validate_same_role(errors: ErrorList, obj: JSON, old: JSON) -> None:
    if obj.get("roleRef") != old.get("roleRef"):
        errors.invalid("roleRef", obj.get("roleRef"), "cannot change roleRef", "rbac/v1.RoleRef")
