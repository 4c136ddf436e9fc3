"""User names of ServiceAccounts and nodes.

Sources: apiserver pkg/authentication/serviceaccount, pkg/auth/nodeidentifier of v1.36.
"""

from __future__ import annotations

import re

from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_subdomain

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_ACCOUNT = re.compile(rf"system:serviceaccount:({_LABEL}):({_LABEL}(\.{_LABEL})*)")
_NODE_PREFIX, NODES_GROUP = "system:node:", "system:nodes"


def account_username(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def account_groups(namespace: str) -> list[str]:
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]


def account_user(namespace: str, name: str) -> JSON:
    """Return the UserInfo of a ServiceAccount by its name alone."""
    return {"username": account_username(namespace, name), "groups": account_groups(namespace)}


def split_account(username: str) -> tuple[str, str] | None:
    """Return the namespace and name of a ServiceAccount's user, None for other users."""
    account = _ACCOUNT.fullmatch(username)
    return (account[1], account[3]) if account else None


def node_in(username: str) -> str:
    """Return the name of the node in a user name, "" for other users."""
    name = username.removeprefix(_NODE_PREFIX)
    return "" if name == username or dns_subdomain(name) else name


def identified_node(user: JSON) -> str | None:
    """Return the name of a node's user, None for users that are no nodes."""
    username: str = user["username"]
    if not username.startswith(_NODE_PREFIX) or NODES_GROUP not in (user.get("groups") or ()):
        return None
    return username.removeprefix(_NODE_PREFIX)
