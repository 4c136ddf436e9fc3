"""ClusterRole aggregation: applies the rules of aggregated ClusterRoles, such as admin, edit and view.

Source: v1.36 pkg/controller/clusterroleaggregation/clusterroleaggregation_controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.api.controller import Controller, Result
from kubeloop.controllers.api.objects import Request
from kubeloop.controllers.api.watches import InIndex, Watches
from kubeloop.controllers.clusterroleaggregation.aggregated_rules import aggregated_rules, plain_rules
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.objects.resources import CLUSTER_ROLES


def _is_aggregated(role: JSONValue) -> tuple[str, ...]:
    return ("yes",) if role.get("aggregationRule") is not None else ()


class ClusterRoleAggregationController(Controller):
    """Reconciles aggregated ClusterRoles: all of them after each change, as each may select the changed one."""

    name = "clusterroleaggregation"
    queue_name = "ClusterRoleAggregator"
    field_manager = "clusterrole-aggregation-controller"
    watches = (
        Watches(
            CLUSTER_ROLES,
            InIndex(CLUSTER_ROLES, "aggregated", lambda _role: "yes"),
            indexes={"aggregated": _is_aggregated},
        ),
    )

    async def reconcile(self, request: Request) -> Result:
        """Apply the rules of an aggregated ClusterRole."""
        role = self.cache.get(CLUSTER_ROLES, request)
        if role is None or role.get("aggregationRule") is None:
            return None
        rules = aggregated_rules(role, self.cache.list(CLUSTER_ROLES))
        if rules != plain_rules(role):
            await self.client.apply(
                {
                    "apiVersion": CLUSTER_ROLES.api_version,
                    "kind": CLUSTER_ROLES.kind,
                    "metadata": {"name": request.name, "uid": role["metadata"]["uid"]},
                    **({"rules": rules} if rules else {}),
                }
            )
        return None
