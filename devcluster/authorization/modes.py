"""The authorizers of a server, in the order of `--authorization-mode`.

Sources: pkg/kubeapiserver/authorizer, apiserver pkg/authorization/{authorizerfactory,union} of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from kubeloop.devcluster.api.authorizer import (
    AccessAttributes,
    AuthorizationDecision,
    RequestAuthorizer,
    is_privileged,
)
from kubeloop.devcluster.authorization.access_metrics import AccessMetrics
from kubeloop.devcluster.authorization.mode_names import ALWAYS_ALLOW
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from kubeloop.devcluster.authorization.rbac import RbacAuthorizer


class UserRules(NamedTuple):
    """The rules that apply to a user, as in the status of a SelfSubjectRulesReview."""

    resource_rules: list[JSON]
    non_resource_rules: list[JSON]
    incomplete: bool
    error: str


class AuthorizationChain:
    """Decides all requests of one server. Members of system:masters are allowed everything.

    node_rules: returns the rules of the ClusterRole system:node.
    """

    def __init__(self, store: ObjectStore, modes: Sequence[str], node_rules: Callable[[], Sequence[JSON]]) -> None:
        self.modes = tuple(modes)
        self.metrics = AccessMetrics()
        self._store = store
        self._node_rules = node_rules

    @cached_property
    def _rbac(self) -> RbacAuthorizer:
        from kubeloop.devcluster.authorization.rbac import RbacAuthorizer

        return RbacAuthorizer(self._store)

    @cached_property
    def _authorizers(self) -> list[RequestAuthorizer]:
        from kubeloop.devcluster.authorization.node_authorizer import NodeAuthorizer

        authorizers: dict[str, RequestAuthorizer] = {
            "Node": NodeAuthorizer(self._store, self._node_rules),
            "RBAC": self._rbac,
            ALWAYS_ALLOW: AllowAll(),
            "AlwaysDeny": _DenyAll(),
        }
        return [authorizers[mode] for mode in self.modes]

    def authorize(self, attributes: AccessAttributes) -> AuthorizationDecision:
        if is_privileged(attributes.user):
            return AuthorizationDecision(True)
        reasons = []
        for mode, authorizer in zip(self.modes, self._authorizers, strict=True):
            decision = authorizer.authorize(attributes)
            if decision.allowed:
                self.metrics.allowed_by(mode)
                return decision
            if decision.reason:
                reasons.append(decision.reason)
        return AuthorizationDecision(False, "\n".join(reasons))

    def rules_of(self, user: JSON, namespace: str) -> UserRules:
        """Return the rules of a user in a namespace."""
        from kubeloop.devcluster.authorization.rbac import aggregate, missing_role
        from kubeloop.devcluster.authorization.users import identified_node

        rules: list[JSON] = []
        incomplete, errors = False, []
        for mode in self.modes:
            if mode == ALWAYS_ALLOW:
                rules.append({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
                rules.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
            elif mode == "Node" and identified_node(user) is not None:
                incomplete = True
                errors.append("node authorizer does not support user rule resolution")
            elif mode == "RBAC":
                granted = self._rbac.rules_for(user, namespace)
                rules += [rule for binding in granted for rule in binding.rules or ()]
                missing = [missing_role(binding) for binding in granted if binding.rules is None]
                errors += [aggregate(missing)] if missing else []
        return UserRules(
            [_selected(rule, "apiGroups", "resources", "resourceNames") for rule in rules if rule.get("resources")],
            [_selected(rule, "nonResourceURLs") for rule in rules if rule.get("nonResourceURLs")],
            incomplete,
            aggregate(errors) if errors else "",
        )


def _selected(rule: JSON, *fields: str) -> JSON:
    return {name: rule[name] for name in ("verbs", *fields) if rule.get(name)}


class AllowAll:
    """Allows every request."""

    def authorize(self, attributes: AccessAttributes) -> AuthorizationDecision:
        del attributes
        return AuthorizationDecision(True)


class _DenyAll:
    def authorize(self, attributes: AccessAttributes) -> AuthorizationDecision:
        del attributes
        return AuthorizationDecision(False, "Everything is forbidden.")
