"""Escalation checks: a user grants only permissions that the user has, in a role or by a binding.

The verbs "escalate" on a role and "bind" on the role of a binding lift the check. Sources:
pkg/registry/rbac/{escalation_check.go,helpers.go,*/policybased} of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.authorizer import AccessAttributes, is_privileged
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import CLUSTER_ROLES, ROLES
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted, quoted_list

_GROUP = "rbac.authorization.k8s.io"
_ALL: tuple[JSON, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
_ROLES = {"ClusterRole": CLUSTER_ROLES, "Role": ROLES}
_GARBAGE_COLLECTED = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")


def check_role(store: ObjectStore, context: RequestContext, role: JSON, old: JSON | None) -> None:
    """Raise StatusError 403 unless the user may write the rules of a Role or ClusterRole. old: None for a create."""
    user, info = context.request.user, context.info
    if is_privileged(user) or (old is not None and _changes_references_alone(role, old)):
        return
    resource = info.served.resource
    escalate = AccessAttributes(user, "escalate", _GROUP, resource.plural, "", info.namespace, info.name)
    if context.authorizer.authorize(escalate).allowed:
        return
    name = role["metadata"].get("name", "")
    if problem := _missing(store, context, role.get("rules") or ()):
        raise errors.forbidden(resource, name, problem)
    aggregates = any(
        (version.get("aggregationRule") or {}).get("clusterRoleSelectors") for version in (role, old or {})
    )
    if aggregates and _missing(store, context, _ALL):
        raise errors.forbidden(resource, name, "must have cluster-admin privileges to use the aggregationRule")


def check_binding(store: ObjectStore, context: RequestContext, binding: JSON, old: JSON | None) -> None:
    """Raise StatusError 403 unless the user may bind the role of a binding, 404 if there is no such role."""
    user, info = context.request.user, context.info
    if is_privileged(user) or (old is not None and _changes_references_alone(binding, old)):
        return
    reference = binding.get("roleRef") or {}
    kind, name = reference.get("kind", ""), reference.get("name", "")
    role = _ROLES.get(kind)
    if role is None:
        raise errors.internal(f"unsupported role reference kind: {quoted(kind)}")
    bind = AccessAttributes(user, "bind", reference.get("apiGroup", ""), role.plural, "", info.namespace, name)
    if context.authorizer.authorize(bind).allowed:
        return
    from kubeloop.devcluster.authorization.rbac import RbacAuthorizer

    rules = RbacAuthorizer(store).role_rules(reference, info.namespace)
    if rules is None:
        raise errors.not_found(info.served.resource, name)  # not of the role, as in kube-apiserver
    if problem := _missing(store, context, rules):
        raise errors.forbidden(info.served.resource, binding["metadata"].get("name", ""), problem)


def _changes_references_alone(obj: JSON, old: JSON) -> bool:
    """Return True for an update of the fields that garbage collection changes. Source: IsOnlyMutatingGCFields."""
    new_form, old_form = (
        {
            **{name: value for name, value in version.items() if value and name not in ("kind", "apiVersion")},
            "metadata": {
                name: value for name, value in version["metadata"].items() if value and name not in _GARBAGE_COLLECTED
            },
        }
        for version in (obj, old)
    )
    return new_form == old_form


def _missing(store: ObjectStore, context: RequestContext, rules: Iterable[JSON]) -> str:
    """Return the message about permissions of `rules` that the user does not have, "" if there are none."""
    from kubeloop.devcluster.authorization.rbac import RbacAuthorizer, aggregate
    from kubeloop.devcluster.authorization.rule_coverage import description, missing_permissions

    user, info = context.request.user, context.info
    granted = RbacAuthorizer(store).rules_for(user, info.namespace)
    owned = [rule for binding in granted for rule in binding.rules or ()]
    missing = missing_permissions(owned, rules)
    if not missing:
        return ""
    problem = (
        f"user {quoted(user['username'])} (groups={quoted_list(user.get('groups') or ())})"
        f" is attempting to grant RBAC permissions not currently held:\n{description(missing)}"
    )
    unresolved = [
        errors.not_found(info.served.resource, binding.reference["name"]).message
        for binding in granted
        if binding.rules is None
    ]
    return f"{problem}; resolution errors: [{aggregate(unresolved)}]" if unresolved else problem
