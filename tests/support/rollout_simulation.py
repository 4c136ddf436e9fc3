"""Simulation of a cluster for the Deployment and ReplicaSet controllers: delayed watches, a kubelet and faults.

The simulation replaces the client and feeds the informers: every write reaches the caches later, in order per resource,
like watch events. One seed determines all delays and faults. The tests are in tests/simulation.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from kubeloop.controllers.deployment.controller import DeploymentController
from kubeloop.controllers.replicaset.controller import ReplicaSetController
from kubeloop.controllers.replicaset.replication_controllers import REPLICA_SET, REPLICATION_CONTROLLER
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.devcluster.serializer.patches import merge_patch
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.client.current_span import request_traceparent
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.errors import ServerUnreachable, from_status
from kubeloop.kube.objects.api_types import Status, convert
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, Resource
from support.disabled_recorders import DisabledPodRecorder, DisabledReconcileRecorder

Json = Any
NAMESPACE = "default"
SERVED: dict[str, Resource[Any]] = {
    resource.plural: resource for resource in (DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS, PODS)
}


@dataclass(frozen=True)
class SimulationSettings:
    """Maximum durations in seconds (uniformly distributed from 0), and the share of requests that fail."""

    request: float = 0.02
    watch: float = 0.1
    start: float = 3.0  # of a Pod, from creation to ready
    stop: float = 3.0  # of a Pod, from its deletion
    fault: float = 0.0  # share of requests that fail
    lost_response: float = 0.0  # share of writes that succeed, but whose response is lost


@dataclass
class DiscardedEvents:
    """An event sink that discards all events."""

    def event(self, about: Any, type_: str, reason: str, message: str) -> None:
        return


@dataclass
class RolloutSimulation:
    """API server, kubelets and controllers. runs(pod): whether the Pod becomes ready."""

    clock: Clock
    rng: random.Random
    pace: SimulationSettings = SimulationSettings()
    runs: Callable[[Json], bool] = lambda pod: "bad" not in pod["spec"]["containers"][0]["image"]
    on_write: Callable[[str, str, Json, Json], None] = lambda verb, resource, old, new: None
    on_delete_request: Callable[[str], None] = lambda name: (
        None
    )  # called with the name of a Pod that a controller deletes
    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    writes: Counter[str] = field(default_factory=Counter)
    traces: Any = field(default_factory=DisabledReconcileRecorder)
    pod_traces: Any = field(default_factory=DisabledPodRecorder)
    events: Any = field(default_factory=DiscardedEvents)
    created_with: list[tuple[Json, str]] = field(default_factory=list)  # body and traceparent of each create

    def __post_init__(self) -> None:
        self._version = 1
        self._names = 0
        self._last_delivery: dict[str, float] = {}
        self.informers = InformerFactory(self, clock=self.clock, rng=self.rng)  # type: ignore[arg-type]
        for resource in SERVED.values():
            self.informers.informer(resource).advance("1")  # as after a first, empty list
        context = ControllerContext(self.informers.client, self.informers, self.clock, self.traces)
        self.deployments = DeploymentController(context, recorder=self.events)
        self.replica_sets, self.replication_controllers = (
            ReplicaSetController(context, recorder=self.events, pod_traces=self.pod_traces, variant=variant)
            for variant in (REPLICA_SET, REPLICATION_CONTROLLER)
        )

    async def run(self) -> None:
        """Run the controllers until cancelled. The caches are complete from the start: writes feed the informers."""
        async with asyncio.TaskGroup() as tasks:
            for part in (self.deployments, self.replica_sets, self.replication_controllers):
                tasks.create_task(part._controller.run())

    # --- reading -----------------------------------------------------------------------------------------------------

    def all(self, plural: str) -> list[Json]:
        return [obj for (resource, _), obj in self.objects.items() if resource == plural]

    def get_now(self, plural: str, name: str) -> Json:
        return self.objects[plural, f"{NAMESPACE}/{name}"]

    # --- users and kubelets ----------------------------------------------------------------------------------------

    def apply(self, plural: str, obj: Json) -> Json:
        """Create or update an object as a user, without a resourceVersion."""
        key = f"{NAMESPACE}/{obj['metadata']['name']}"
        old = self.objects.get((plural, key))
        if old is None:
            return self._create(plural, obj)
        return self._store(plural, key, merge_patch(old, {name: obj[name] for name in obj if name != "metadata"}))

    def _create(self, plural: str, obj: Json) -> Json:
        obj = copy.deepcopy(obj)
        metadata = obj["metadata"]
        self._names += 1
        if not metadata.get("name"):
            metadata["name"] = f"{metadata['generateName']}{self._names:06d}"
        now = rfc3339(self.clock.now())
        metadata |= {"namespace": NAMESPACE, "uid": f"uid-{self._names:06d}", "creationTimestamp": now, "generation": 1}
        obj.setdefault("status", {"phase": "Pending"} if plural == "pods" else {"replicas": 0})
        self._set(plural, f"{NAMESPACE}/{metadata['name']}", obj, "ADDED")
        if plural == "pods":
            self._later(self.pace.start / 3, self._bind, obj["metadata"]["uid"], metadata["name"])
        return obj

    def _store(self, plural: str, key: str, obj: Json) -> Json:
        old = self.objects[plural, key]
        if obj == old:
            return old
        if obj.get("spec") != old.get("spec"):
            obj["metadata"]["generation"] = old["metadata"]["generation"] + 1
        self._set(plural, key, obj, "MODIFIED")
        return obj

    def _set(self, plural: str, key: str, obj: Json, event: str) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.objects[plural, key] = obj
        self._announce(plural, event, obj)

    def _remove(self, plural: str, key: str) -> None:
        obj = copy.deepcopy(self.objects.pop((plural, key)))
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self._announce(plural, "DELETED", obj)

    def _announce(self, plural: str, event: str, obj: Json) -> None:
        """Deliver an event to the informer after a delay. Events of one resource stay in order."""
        loop = asyncio.get_running_loop()
        resource = SERVED[plural]
        # strictly later than the previous event: the loop does not order timers of the same time
        at = max(self._last_delivery.get(plural, 0.0) + 1e-6, loop.time() + self.rng.uniform(0, self.pace.watch))
        self._last_delivery[plural] = at
        delivered = {**obj, "kind": resource.kind, "apiVersion": resource.api_version}
        loop.call_at(at, self.informers.informer(resource).apply, event, convert(resource.type, delivered))

    def _later(self, most_seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        asyncio.get_running_loop().call_later(self.rng.uniform(0, most_seconds), act, *arguments)

    def _pod(self, uid: str, name: str) -> Json | None:
        pod = self.objects.get(("pods", f"{NAMESPACE}/{name}"))
        return copy.deepcopy(pod) if pod is not None and pod["metadata"]["uid"] == uid else None

    def _bind(self, uid: str, name: str) -> None:
        pod = self._pod(uid, name)
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            pod["spec"]["nodeName"] = f"node-{self.rng.randrange(10)}"
            self._store("pods", f"{NAMESPACE}/{name}", pod)
            self._later(self.pace.start / 3, self._start, uid, name, "False")

    def _start(self, uid: str, name: str, ready: str) -> None:
        """Set the phase Running; the Pod becomes ready later if `runs` returns True."""
        pod = self._pod(uid, name)
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            if ready == "False" and self.runs(pod):
                self._later(self.pace.start / 3, self._start, uid, name, "True")
            condition = {"type": "Ready", "status": ready, "lastTransitionTime": rfc3339(self.clock.now())}
            pod["status"] = {"phase": "Running", "conditions": [condition]}
            self._store("pods", f"{NAMESPACE}/{name}", pod)

    def _stop(self, uid: str, name: str) -> None:
        if self._pod(uid, name) is not None:
            self._remove("pods", f"{NAMESPACE}/{name}")

    # --- client methods --------------------------------------------------------------------------------------------

    async def _request(self) -> None:
        await asyncio.sleep(self.rng.uniform(0, self.pace.request))
        if self.rng.random() < self.pace.fault:
            failure = self.rng.choice(
                [("Conflict", 409), ("InternalError", 500), ("TooManyRequests", 429), ("ServerTimeout", 504)]
            )
            raise from_status(Status(status="Failure", reason=failure[0], code=failure[1], message="injected fault"))

    async def _respond(self) -> None:
        await asyncio.sleep(self.rng.uniform(0, self.pace.request))
        if self.rng.random() < self.pace.lost_response:
            raise ServerUnreachable("the response was lost", maybe_applied=True)

    def _existing(self, resource: Resource[Any], key: str) -> Json:
        obj = self.objects.get((resource.plural, key))
        if obj is None:
            raise from_status(Status(status="Failure", reason="NotFound", code=404, message=f"{key} not found"))
        return obj

    async def get(self, resource: Resource[Any], name: str, namespace: str = "") -> Any:
        await self._request()
        return convert(resource.type, self._existing(resource, f"{namespace}/{name}"))

    async def create(self, resource: Resource[Any], body: Json, namespace: str = "") -> Any:
        await self._request()
        obj = msgspec.json.decode(msgspec.json.encode(body))
        name = obj["metadata"].get("name")
        if name and (resource.plural, f"{namespace}/{name}") in self.objects:
            raise from_status(Status(status="Failure", reason="AlreadyExists", code=409, message=f"{name} exists"))
        self.created_with.append((obj, request_traceparent()))
        created = self._create(resource.plural, obj)
        self.writes[f"create {resource.plural}"] += 1
        self.on_write("create", resource.plural, None, created)
        await self._respond()
        return convert(resource.type, created)

    async def patch(
        self,
        resource: Resource[Any],
        name: str,
        body: Json,
        patch_type: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
        lane: str = "",
    ) -> Any:
        await self._request()
        key = f"{namespace}/{name}"
        old = self._existing(resource, key)
        body = msgspec.json.decode(msgspec.json.encode(body))
        assert patch_type is PatchType.MERGE, "the simulation has no adoptions and no rollbacks"
        version = body["metadata"].pop("resourceVersion")
        if version != old["metadata"]["resourceVersion"]:
            raise from_status(Status(status="Failure", reason="Conflict", code=409, message=f"{key} changed"))
        if subresource == "status":
            body.pop("spec", None)
        new = merge_patch(copy.deepcopy(old), body)
        kind = "status" if subresource else "scale" if "spec" in body else "annotations"
        self.writes[f"{kind} {resource.plural}"] += 1
        new = self._store(resource.plural, key, new)
        self.on_write(kind, resource.plural, old, new)
        await self._respond()
        return convert(resource.type, new)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str = "",
        *,
        precondition_uid: str = "",
    ) -> Json:
        if resource is PODS:
            self.on_delete_request(name)
        await self._request()
        key = f"{namespace}/{name}"
        old = self._existing(resource, key)
        self.writes[f"delete {resource.plural}"] += 1
        if resource is not PODS:
            self._remove(resource.plural, key)
        elif "deletionTimestamp" not in old["metadata"]:
            new = copy.deepcopy(old)
            new["metadata"]["deletionTimestamp"] = rfc3339(self.clock.now())
            self._set("pods", key, new, "MODIFIED")
            self.on_write("delete", "pods", old, new)
            self._later(self.pace.stop, self._stop, old["metadata"]["uid"], name)
        await self._respond()
        return {}


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
    """Return a Deployment with defaults, as stored by the API server."""
    rolling = {"type": strategy}
    if strategy == "RollingUpdate":
        rolling["rollingUpdate"] = {"maxSurge": max_surge, "maxUnavailable": max_unavailable}  # type: ignore[assignment]
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
            "strategy": rolling,
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
