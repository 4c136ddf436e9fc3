"""ClusterRole aggregation: applies the rules of aggregated ClusterRoles, such as admin, edit and view.

Source: v1.36 pkg/controller/clusterroleaggregation/clusterroleaggregation_controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.clusterroleaggregation.aggregated_rules import aggregated_rules, plain_rules
from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.objects.resources import CLUSTER_ROLES

_APPLY = {"fieldManager": "clusterrole-aggregation-controller", "force": "true"}


class ClusterRoleAggregationController(EventDrivenController):
    """Reconciles aggregated ClusterRoles, by name; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "clusterroleaggregation", "ClusterRoleAggregator")
        roles = context.informers.informer(CLUSTER_ROLES)
        self._roles = roles.store
        self._roles.add_index("aggregated", _is_aggregated)
        self._registrations = (roles.on_latest(self._on_role, deleted=self._on_role),)

    def _on_role(self, _changed: object) -> None:
        """Enqueue all aggregated ClusterRoles: each may select the one that has changed, or did so before."""
        for role in self._roles.by_index("aggregated", "yes"):
            self.queue.add(role["metadata"]["name"])

    async def reconcile(self, name: str) -> float | None:
        """Apply the rules of an aggregated ClusterRole. An exception means: retry with backoff."""
        role = self._roles.get(name)
        if role is None or role.get("aggregationRule") is None:
            return None
        rules = aggregated_rules(role, self._roles.values())
        if rules != plain_rules(role):
            body = {
                "apiVersion": CLUSTER_ROLES.api_version,
                "kind": CLUSTER_ROLES.kind,
                "metadata": {"name": name, "uid": role["metadata"]["uid"]},
                **({"rules": rules} if rules else {}),
            }
            await self._client.patch(CLUSTER_ROLES, name, body, PatchType.APPLY, query=_APPLY)
        return None


def _is_aggregated(role: JSONValue) -> tuple[str, ...]:
    return ("yes",) if role.get("aggregationRule") is not None else ()
