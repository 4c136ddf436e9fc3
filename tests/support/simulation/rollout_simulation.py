"""Simulation of rollouts: a fake API server with delays and faults, controllers, and kubelets as timers.

Every write reaches the caches later, in order per resource. One seed determines all delays and faults. The tests are in
tests/simulation.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec import structs

from kubeloop.controllers.deployment.deployment_controller import DeploymentController
from kubeloop.controllers.replicaset.replica_set_controller import ReplicaSetController
from kubeloop.controllers.replicaset.replication_controllers import REPLICA_SET, REPLICATION_CONTROLLER
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.client.retries import RetryPolicy
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.resources import PODS, Resource
from support.apiserver.fake_apiserver import FakeApiServer, Write
from support.apiserver.faulty_transport import injected_error
from support.simulation.recorded_events import RecordedEvents
from support.traces.disabled_recorders import DisabledPodRecorder, DisabledReconcileRecorder

Json = Any
NAMESPACE = "default"
FAULT_CODES = (409, 500, 429, 504)


@dataclass(frozen=True)
class SimulationSettings:
    """Maximum durations in seconds (uniformly distributed from 0), and the share of requests that fail.

    Failed requests are not retried by the client, so that each failure reaches a controller.
    """

    request: float = 0.02  # until the server handles it; the response takes as long again
    watch: float = 0.1
    start: float = 3.0  # of a Pod, from creation to ready
    stop: float = 3.0  # of a Pod, from its deletion
    fault: float = 0.0  # share of requests that fail
    lost_response: float = 0.0  # share of writes that succeed, but whose response is lost


class SimulatedPods:
    """Kubelets as timers: a Pod is bound, starts and becomes ready, unless its image is "bad"; a deleted one stops."""

    def __init__(self, server: FakeApiServer, pace: SimulationSettings, rng: random.Random) -> None:
        self._store, self._clock = server.store, server.clock
        self._pace = pace
        self._rng = rng
        server.store.subscribe(PODS, self._run_pod)

    def _run_pod(self, change: Change) -> None:
        metadata = change.now.object["metadata"]
        if change.before is None:
            self._later(self._pace.start / 3, self._bind, metadata)
        elif not pod_not_deleted(change.now.object) and pod_not_deleted(change.before.object):
            self._later(self._pace.stop, self._stop, metadata)

    def _later(self, most_seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        asyncio.get_running_loop().call_later(self._rng.uniform(0, most_seconds), act, *arguments)

    def _pod(self, metadata: Json) -> Json | None:
        pod = self._store.get(PODS, NAMESPACE, metadata["name"])
        return pod if pod is not None and pod["metadata"]["uid"] == metadata["uid"] else None

    def _bind(self, metadata: Json) -> None:
        pod = self._pod(metadata)
        if pod is not None:
            spec = {**pod["spec"], "nodeName": f"node-{self._rng.randrange(10)}"}
            self._store.update(PODS, {**pod, "spec": spec})
            self._later(self._pace.start / 3, self._start, metadata, "False")

    def _start(self, metadata: Json, ready: str) -> None:
        """Set the phase Running; the Pod becomes ready later."""
        pod = self._pod(metadata)
        if pod is not None and pod_not_deleted(pod):
            if ready == "False" and "bad" not in pod["spec"]["containers"][0]["image"]:
                self._later(self._pace.start / 3, self._start, metadata, "True")
            condition = {"type": "Ready", "status": ready, "lastTransitionTime": rfc3339(self._clock.now())}
            self._store.update(PODS, {**pod, "status": {"phase": "Running", "conditions": [condition]}})

    def _stop(self, metadata: Json) -> None:
        if self._pod(metadata) is not None:
            self._store.delete(PODS, NAMESPACE, metadata["name"])


class RolloutSimulation:
    """API server, kubelets, and the controllers of Deployments, ReplicaSets and ReplicationControllers.

    on_write: called with the kind and the data of each write of the controllers.
    writes: number of writes by kind and resource, such as "scale replicasets".
    """

    def __init__(
        self,
        seed: int,
        pace: SimulationSettings = SimulationSettings(),
        *,
        traces: Any = None,
        pod_traces: Any = None,
        events: Any = None,
    ) -> None:
        self.pace = pace
        self.server = server = FakeApiServer(seed=seed, retries=RetryPolicy(tries=1, throttled_tries=0))
        self.clock, self.informers = server.clock, server.informers
        self.writes: Counter[str] = Counter()
        self.on_write: Callable[[str, Write], None] = lambda kind, write: None
        self._rng = random.Random(seed)
        SimulatedPods(server, pace, self._rng)
        server.on_write = self._count_write
        transport = server.transport
        transport.latency_seconds, transport.watch_delay_seconds = pace.request, pace.watch
        transport.reject, transport.lose_response = self._reject, self._lose_response
        context = structs.replace(
            server.context,
            traces=traces or DisabledReconcileRecorder(),
            pod_traces=pod_traces or DisabledPodRecorder(),
            events=events or RecordedEvents(),
        )
        self.deployments = DeploymentController(context)
        self.replica_sets, self.replication_controllers = (
            ReplicaSetController(context, variant) for variant in (REPLICA_SET, REPLICATION_CONTROLLER)
        )
        for controller in (self.deployments, self.replica_sets, self.replication_controllers):
            for registration in controller._registrations:
                registration.resync_seconds = 0.0  # a resync would reconcile keys that a controller has lost

    async def run(self) -> None:
        """Run informers and controllers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for part in (self.informers, self.deployments, self.replica_sets, self.replication_controllers):
                tasks.create_task(part.run())

    def all(self, resource: Resource[Any]) -> list[Json]:
        return self.server.store.list(resource)

    def get(self, resource: Resource[Any], name: str) -> Json | None:
        return self.server.store.get(resource, NAMESPACE, name)

    def apply(self, resource: Resource[Any], obj: Json) -> Json:
        """Create or update an object as a user, without a resourceVersion. Returns it as stored."""
        name = obj["metadata"]["name"]
        if self.get(resource, name) is None:
            return self.server.api.create(resource.path(NAMESPACE), obj)
        changed = {field: obj[field] for field in obj if field != "metadata"}
        return self.server.api.succeed("PATCH", resource.path(NAMESPACE, name), changed)

    # --- writes and faults -------------------------------------------------------------------------------------------

    def _count_write(self, write: Write) -> None:
        kind = "create" if write.method == "POST" else "delete"
        if write.method == "PATCH":
            kind = "status" if write.subresource else "scale" if "spec" in write.body else "annotations"
        self.writes[f"{kind} {write.resource.plural}"] += 1
        self.on_write(kind, write)

    def _reject(self, method: str, path: str) -> StatusError | None:
        return injected_error(self._rng.choice(FAULT_CODES)) if self._rng.random() < self.pace.fault else None

    def _lose_response(self, method: str, path: str) -> bool:
        return method != "GET" and self._rng.random() < self.pace.lost_response


def deployment(
    name: str = "web",
    *,
    replicas: int = 3,
    image: str = "app:1",
    max_surge: int | str = "25%",
    max_unavailable: int | str = "25%",
    strategy: str = "RollingUpdate",
    min_ready_seconds: int = 0,
    paused: bool = False,
) -> Json:
    """Return a Deployment. It replaces the strategy of a former one when it is applied."""
    limits = {"maxSurge": max_surge, "maxUnavailable": max_unavailable} if strategy == "RollingUpdate" else None
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
            "strategy": {"type": strategy, "rollingUpdate": limits},
            "minReadySeconds": min_ready_seconds,
            "paused": paused,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
        },
    }


def pod_not_deleted(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def pod_is_available(pod: Json, min_ready_seconds: int, now: datetime) -> bool:
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "Ready" and condition["status"] == "True":
            since = datetime.fromisoformat(condition["lastTransitionTime"])
            return pod_not_deleted(pod) and (now - since).total_seconds() >= min_ready_seconds
    return False
