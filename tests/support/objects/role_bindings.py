"""Roles and bindings for requests of users that are not in system:masters."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLUSTER_ROLES, CLUSTER_BINDINGS = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
ROLES, BINDINGS = (f"{RBAC}/namespaces/default/{plural}" for plural in ("roles", "rolebindings"))


def role(name: str, *rules: JSON, **fields: Any) -> JSON:
    """Return a Role or ClusterRole."""
    return {"metadata": {"name": name}, "rules": [*rules], **fields}


def binding(name: str, role_name: str, *users: str, groups: tuple[str, ...] = (), kind: str = "ClusterRole") -> JSON:
    """Return a RoleBinding or ClusterRoleBinding."""
    subjects = [{"kind": "User", "name": user} for user in users]
    subjects += [{"kind": "Group", "name": group} for group in groups]
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role_name},
        "subjects": subjects,
    }


ALL_USERS_ARE_ADMINISTRATORS = binding("all-users", "cluster-admin", groups=("system:authenticated",))
