"""Assembly of a development cluster in this process: its API server, simulated nodes and their controllers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kubeloop.devcluster.controllers.volume_provisioner import VolumeProvisioner
from kubeloop.devcluster.kubelet.nodes.simulated_nodes import SimulatedNodes
from kubeloop.devcluster.kubelet.stages.requests import StageRequests
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.simulation.node_objects import NodeSettings, declared_features
from kubeloop.kube.clock import Clock

if TYPE_CHECKING:
    from kubeloop.devcluster.kubelet.stages.files import Stage


@contextlib.asynccontextmanager
async def running_cluster(
    api: ApiServer, nodes: NodeSettings, stages: Sequence[Stage], *, token: str | None, clock: Clock, rng: random.Random
) -> AsyncIterator[None]:
    """Run the API server and its nodes for the length of the context. The nodes are in the store when it begins.

    A crash raises out of the context, in an ExceptionGroup. token: that of the API server, for stages.
    """

    def new_rng() -> random.Random:
        return random.Random(rng.getrandbits(64))

    requests = None
    if stages:
        requests = StageRequests(api.handle_in_process, token)
    nodes = replace(nodes, declared_features=declared_features(api.feature_gates))
    kubelets = SimulatedNodes(
        api.store, nodes, clock=clock, rng=new_rng(), stages=stages, requests=requests, gates=api.feature_gates
    )
    kubelets.register()
    runs = {"api-server": api.run, "nodes": kubelets.run}
    if nodes.every_node:
        staged_claims = any(stage.kind == "PersistentVolumeClaim" for stage in stages)
        volumes = VolumeProvisioner(api.store, clock=clock, rng=new_rng(), only_own=staged_claims)
        volumes.register()
        runs["volumes"] = volumes.run
    others = [stage for stage in stages if not stage.is_for_pod_or_node]
    if others and requests is not None:
        from kubeloop.devcluster.kubelet.stages.objects import ObjectStages

        runs["stages"] = ObjectStages(others, requests, api.store, clock=clock, rng=new_rng()).run
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(), name=name) for name, run in runs.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
