"""Sites, written for kubeloop: a ConfigMap and a Deployment for each Site, and its status.

PYTHONPATH=../../tests kubeloop run --controllers kubeloop_operator:Sites
"""

import os

from kubeloop.controllers.api import (
    Controller,
    ControllerHandle,
    For,
    Owns,
    ReconcileOptions,
    Request,
    Result,
    new_resource,
)
from kubeloop.controllers.api.resources import CONFIG_MAPS, DEPLOYMENTS
from support.controllers.sites import Site, config_map_of, deployment_of

SITES = new_resource(Site, "bench.example.com/v1")


class Sites(Controller):
    name = "sites"
    watches = (For(SITES), Owns(CONFIG_MAPS), Owns(DEPLOYMENTS))
    options = ReconcileOptions(max_concurrent_reconciles=10)

    def __init__(self, handle: ControllerHandle) -> None:
        super().__init__(handle)
        self.counted = os.open(os.environ["RECONCILES"], os.O_WRONLY | os.O_APPEND)

    async def reconcile(self, request: Request) -> Result:
        os.write(self.counted, b".")
        site = self.cache.get(SITES, request)
        if site is None or site.metadata.deletion_timestamp is not None:
            return None
        await self.create_or_patch(site, config_map_of(site))
        await self.create_or_patch(site, deployment_of(site))
        deployment = self.cache.get(DEPLOYMENTS, request)
        ready = (deployment.status.ready_replicas or 0) if deployment is not None else 0
        is_ready = ready >= site.spec.replicas
        reason = "MinimumReplicasAvailable" if is_ready else "ReplicasMissing"
        await self.set_condition(site, "Ready", is_ready, reason, readyReplicas=ready)
        return None
