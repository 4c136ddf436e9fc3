"""RBAC: decisions by the stored roles and bindings.

The rules of a subject are computed on its first request and stored until a role or binding changes. Sources:
plugin/pkg/auth/authorizer/rbac, pkg/registry/rbac/validation/rule.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kubeloop.devcluster.api.authorizer import AccessAttributes, AuthorizationDecision
from kubeloop.devcluster.api.served_resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from kubeloop.devcluster.authorization.users import account_username
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted

_MAX_SUBJECTS = 1000
_RESOURCES = (ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)


class GrantedRules(NamedTuple):
    """Rules that one binding grants to a user: those of its role, None if the role does not exist.

    source: describes the binding. reference: its roleRef.
    """

    source: str
    reference: JSON
    rules: Sequence[JSON] | None


class RbacAuthorizer:
    """Decides by the roles and bindings of a store, which are created when a decision first needs them."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._revisions: tuple[int, ...] = ()
        self._granted: dict[tuple[str, tuple[str, ...], str], list[GrantedRules]] = {}

    def authorize(self, attributes: AccessAttributes) -> AuthorizationDecision:
        errors = []
        for granted in self.rules_for(attributes.user, attributes.namespace):
            if granted.rules is None:
                errors.append(missing_role(granted))
            elif any(rule_allows(rule, attributes) for rule in granted.rules):
                return AuthorizationDecision(True, f"RBAC: allowed by {granted.source}")
        return AuthorizationDecision(False, f"RBAC: {aggregate(errors)}" if errors else "")

    def rules_for(self, user: JSON, namespace: str) -> list[GrantedRules]:
        """Return the rules that ClusterRoleBindings, and RoleBindings of `namespace` unless it is "", give a user."""
        revisions = tuple([self._store.table(resource).revision for resource in _RESOURCES])
        if revisions != self._revisions or len(self._granted) > _MAX_SUBJECTS:
            self._granted.clear()
            self._revisions = revisions
        key = (user["username"], tuple(user.get("groups") or ()), namespace)
        granted = self._granted.get(key)
        if granted is None:
            granted = self._granted[key] = [*self._visit(user, namespace)]
        return granted

    def role_rules(self, reference: JSON, namespace: str) -> Sequence[JSON] | None:
        """Return the rules of the role to which a binding in `namespace` refers, None if it does not exist."""
        is_cluster_role = reference["kind"] == "ClusterRole"
        role = self._store.get(*((CLUSTER_ROLES, "") if is_cluster_role else (ROLES, namespace)), reference["name"])
        return None if role is None else role.get("rules") or ()

    def _visit(self, user: JSON, namespace: str) -> Iterator[GrantedRules]:
        for binding in self._store.list(CLUSTER_ROLE_BINDINGS, ""):
            yield from self._granted_by("ClusterRoleBinding", binding, user, "")
        if namespace:
            for binding in self._store.list(ROLE_BINDINGS, namespace):
                yield from self._granted_by("RoleBinding", binding, user, namespace)

    def _granted_by(self, kind: str, binding: JSON, user: JSON, namespace: str) -> Iterator[GrantedRules]:
        subject = next(
            (subject for subject in binding.get("subjects") or () if _is_subject(user, subject, namespace)), None
        )
        if subject is None:
            return
        reference, name = binding["roleRef"], binding["metadata"]["name"]
        named = quoted(f"{name}/{namespace}" if namespace else name)
        role = f"{reference['kind']} {quoted(reference['name'])}"
        source = f"{kind} {named} of {role} to {_description(subject, namespace)}"
        yield GrantedRules(source, reference, self.role_rules(reference, namespace))


def missing_role(binding: GrantedRules) -> str:
    """Return the error of a binding whose role does not exist."""
    return f'{binding.reference["kind"].lower()}.rbac.authorization.k8s.io "{binding.reference["name"]}" not found'


def aggregate(errors: Iterable[str]) -> str:
    """Return several errors as Kubernetes' aggregate: each once, in brackets if there are more than one."""
    distinct = [*dict.fromkeys(errors)]
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def _is_subject(user: JSON, subject: JSON, namespace: str) -> bool:
    kind, name = subject["kind"], subject["name"]
    if kind == "User":
        return bool(user["username"] == name)
    if kind == "Group":
        return name in (user.get("groups") or ())
    account_namespace = subject.get("namespace") or namespace
    return bool(account_namespace) and user["username"] == account_username(account_namespace, name)


def _description(subject: JSON, namespace: str) -> str:
    kind, name = subject["kind"], subject["name"]
    if kind == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    return f"{kind} {quoted(name)}"


def rule_allows(rule: JSON, attributes: AccessAttributes) -> bool:
    """Return True if a PolicyRule allows a request."""
    if not _includes(rule.get("verbs") or (), attributes.verb):
        return False
    if attributes.path is not None:
        return any(url_matches(url, attributes.path) for url in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames")
    return (
        _includes(rule.get("apiGroups") or (), attributes.group)
        and _matches_resource(rule.get("resources") or (), attributes)
        and (not names or attributes.name in names)
    )


def url_matches(pattern: str, path: str) -> bool:
    """Return True if a nonResourceURL of a rule covers a path, or another such URL."""
    return pattern == path or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def _includes(values: Sequence[str], value: str) -> bool:
    return value in values or "*" in values


def _matches_resource(resources: Sequence[str], attributes: AccessAttributes) -> bool:
    if _includes(resources, attributes.combined_resource):
        return True
    return bool(attributes.subresource) and f"*/{attributes.subresource}" in resources
