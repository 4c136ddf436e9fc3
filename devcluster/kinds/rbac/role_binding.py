"""RoleBindings. Source: pkg/apis/rbac/validation of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kubeloop.devcluster.api.strategy import ComputedColumn, Strategy
from kubeloop.devcluster.authorization.escalation import check_binding
from kubeloop.devcluster.printers.columns import AGE, row
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import path_segment
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_subdomain


def validate_role_binding(errors: ErrorList, obj: JSON) -> None:
    validate_binding(errors, obj, ("Role", "ClusterRole"))


_RBAC = "rbac.authorization.k8s.io"


def validate_binding(errors: ErrorList, obj: JSON, kinds: Sequence[str]) -> None:
    reference = obj.get("roleRef", {})
    if reference.get("apiGroup", "") != _RBAC:
        errors.not_supported("roleRef.apiGroup", reference.get("apiGroup", ""), (_RBAC,))
    errors.one_of("roleRef.kind", reference.get("kind", ""), kinds)
    errors.check_required("roleRef.name", reference.get("name", ""), path_segment)
    for i, subject in enumerate(obj.get("subjects", ())):
        _validate_subject(errors, f"subjects[{i}]", subject, namespaced=len(kinds) > 1)


def _validate_subject(errors: ErrorList, where: str, subject: JSON, *, namespaced: bool) -> None:
    name, kind, group = (subject.get(field, "") for field in ("name", "kind", "apiGroup"))
    errors.require(f"{where}.name", name)
    if kind == "ServiceAccount":
        errors.check(f"{where}.name", name or None, dns_subdomain)
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
    validate_same_role(errors, obj, old)


def validate_same_role(errors: ErrorList, obj: JSON, old: JSON) -> None:
    if obj.get("roleRef") != old.get("roleRef"):
        errors.invalid("roleRef", obj.get("roleRef"), "cannot change roleRef", "rbac/v1.RoleRef")


def default_role_binding(obj: JSON) -> None:
    if not obj.get("roleRef", {}).get("apiGroup"):
        obj.setdefault("roleRef", {})["apiGroup"] = _RBAC
    for subject in obj.get("subjects", ()):
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = _RBAC


def _role(binding: JSON, _now: datetime) -> str:
    role = binding.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _subjects(kind: str) -> ComputedColumn:
    def cell(binding: JSON, _now: datetime) -> str:
        return ", ".join(
            f"{subject.get('namespace', '')}/{subject['name']}" if kind == "ServiceAccount" else subject["name"]
            for subject in binding.get("subjects") or ()
            if subject.get("kind") == kind
        )

    return cell


ROLE_BINDING_CELLS = row(_role, AGE, _subjects("User"), _subjects("Group"), _subjects("ServiceAccount"))


STRATEGY = Strategy(
    default=default_role_binding,
    name_check=path_segment,
    validate=validate_role_binding,
    validate_update=validate_role_binding_update,
    update_steps="wsu",
    authorize_write=check_binding,
    cells=ROLE_BINDING_CELLS,
)
