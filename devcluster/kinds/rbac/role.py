"""Roles. Source: pkg/apis/rbac/validation."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.authorization.escalation import check_role
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import path_segment
from kubeloop.kube.json_object import JSON


def validate_role(errors: ErrorList, obj: JSON) -> None:
    validate_rules(errors, obj, namespaced=True)


def validate_rules(errors: ErrorList, obj: JSON, *, namespaced: bool) -> None:
    """Source: rbac validation.ValidatePolicyRule."""
    for i, rule in enumerate(obj.get("rules") or ()):
        where = f"rules[{i}]"
        groups, resources, urls = (rule.get(name) for name in ("apiGroups", "resources", "nonResourceURLs"))
        errors.require(f"{where}.verbs", rule.get("verbs"), "verbs must contain at least one value")
        if urls:
            if namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                errors.invalid(f"{where}.nonResourceURLs", urls, detail)
            if groups or resources or rule.get("resourceNames"):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                errors.invalid(f"{where}.nonResourceURLs", urls, detail)
            continue
        errors.require(f"{where}.apiGroups", groups, "resource rules must supply at least one api group")
        errors.require(f"{where}.resources", resources, "resource rules must supply at least one resource")


STRATEGY = Strategy(
    name_check=path_segment,
    validate=validate_role,
    validate_update=update_as_create(validate_role),
    update_steps="wsu",
    authorize_write=check_role,
)
