"""A copy of a cluster in memory, in virtual time: API server, simulated nodes, and the controllers that decide about
pods.

The objects have the UIDs of the cluster, so that controllers recognize what they own. Running pods are adopted by their
nodes. Nodes do not fail, CronJobs start no Jobs, and what a controller that kubeloop does not have would do, does not
happen.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import msgspec

from kubeloop.devcluster.authorization.mode_names import ALWAYS_ALLOW
from kubeloop.devcluster.controllers.volume_provisioner import DEFAULT_CLASS
from kubeloop.devcluster.handlers.reading.watch import WatchSettings
from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.simulation.node_objects import ANNOTATION_FAIL, NodeSettings
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.transport import HttpRequest, HttpResponse
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import AlreadyExists, ApiError
from kubeloop.kube.feature_gates import FeatureGates, gang_scheduling_text
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import (
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    LEASES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    STORAGE_CLASSES,
    WORKLOADS,
    Resource,
)
from kubeloop.kube.user_error import UserError
from kubeloop.planning.recorded_metrics import MetricsTransport, RecordedMetrics
from kubeloop.process.control_plane.control_plane import ControlPlane, Settings
from kubeloop.process.development_cluster.cluster_assembly import running_cluster
from kubeloop.recording.changes import ClusterState, Finding
from kubeloop.recording.resources import MUTATING_WEBHOOKS, RECORDED, VALIDATING_WEBHOOKS
from kubeloop.scheduler.config.types import SchedulerConfiguration, default_configuration
from kubeloop.testing.assembly import run_control_plane
from kubeloop.testing.memory_transport import Handle, MemoryTransport
from kubeloop.testing.virtual_time import VirtualClock

CONTROLLERS: Final = frozenset(
    {
        "daemonset", "deployment", "device-taint-eviction", "disruption", "ephemeral-volume", "garbagecollector",
        "horizontalpodautoscaling", "job", "namespace", "persistentvolume-binder", "podgc", "podgroup-protection",
        "pv-protection", "pvc-protection", "replicaset", "replicationcontroller", "resource-claim-controller",
        "resourcequota", "scheduler", "statefulset", "taint-eviction",
    }
)  # fmt: skip
"""Controllers of a copy. Not those that act by the clock alone, such as cronjob, or not on pods."""

_NOT_COPIED: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)  # nothing can be called
_EVENT_REASONS: Final = frozenset({"FailedCreate", "Preempted"})  # that the result is read from
_BACKGROUND: Final = frozenset({EVENTS.group_resource, LEASES.group_resource})
_POD_STATUS: Final = re.compile(r"/api/v1/namespaces/[^/]+/pods/[^/]+/status")
_BINDING: Final = re.compile(r"/api/v1/namespaces/[^/]+/pods/[^/]+/binding")
_NEVER_SECONDS: Final = 1e9


class RunningCluster:
    """A cluster in memory. store: its objects. client: a client of its API server, of an administrator."""

    def __init__(self, store: ObjectStore, client: ApiClient, clock: Clock) -> None:
        self.store = store
        self.client = client
        self.clock = clock

    def objects(self, resource: Resource[Any]) -> dict[str, JSON]:
        """Return the objects of a resource by key, which must not be modified."""
        return {stored.key: stored.object for stored in self.store.table(resource).list()}


class SchedulerWrites(MemoryTransport):
    """A transport that keeps what the scheduler writes about pods from the API server where only the plan reads it.

    messages: of the last attempt, by uid of the pod; these conditions are not sent alone. counts_only: bindings are not
    sent either, so that pods only take their room in the scheduler's cache. placed: uids of those pods. The API server,
    nodes and caches of all controllers take several times as long as the attempts.
    """

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.messages: dict[str, str] = {}
        self.counts_only = False
        self.placed: set[str] = set()

    async def send(self, request: HttpRequest) -> HttpResponse:
        if self.counts_only and request.method == "POST" and _BINDING.fullmatch(request.target):
            self.placed.add(msgspec.json.decode(request.body)["metadata"]["uid"])
            return HttpResponse(201, b'{"kind":"Status","apiVersion":"v1","status":"Success"}')
        if request.method == "PATCH" and _POD_STATUS.fullmatch(request.target):
            match msgspec.json.decode(request.body):
                case {
                    "metadata": {"uid": uid},
                    "status": {"conditions": [{"type": "PodScheduled", "message": message}], **others},
                }:
                    self.messages[uid] = message
                    if not others:
                        return HttpResponse(200, b"{}")
        return await super().send(request)


class ClusterCopy(RunningCluster):
    """A running copy. metrics: of its autoscalers."""

    def __init__(
        self,
        api: ApiServer,
        plane: ControlPlane,
        client: ApiClient,
        clock: Clock,
        metrics: RecordedMetrics,
        scheduler_writes: SchedulerWrites,
    ) -> None:
        super().__init__(api.store, client, clock)
        self.metrics = metrics
        self.scheduler_writes = scheduler_writes
        self.plane = plane
        self._changed_at = asyncio.get_running_loop().time()
        self._changes: Counter[str] = Counter()
        for name, table in self.store.tables():
            if name not in _BACKGROUND:
                table.subscribe(self._note_change)

    def _note_change(self, change: Change) -> None:
        self._changed_at = asyncio.get_running_loop().time()
        self._changes[change.now.object["kind"]] += 1

    async def settle(self, quiet_seconds: float, limit_seconds: float) -> list[str]:
        """Let time pass until nothing has changed for a while, at most so long. Seconds are virtual.

        Returns the kinds that still change, [] if nothing does.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_seconds
        while (wait := self._changed_at + quiet_seconds - loop.time()) > 0:
            if loop.time() >= deadline:
                return [kind for kind, _ in self._changes.most_common(3)]
            self._changes.clear()
            await asyncio.sleep(wait)
        return []


def gates_of(state: ClusterState) -> FeatureGates:
    """Return the feature gates that the objects of a cluster need."""
    return FeatureGates.parse([gang_scheduling_text() if state.of(POD_GROUPS) or state.of(WORKLOADS) else ""])


def metrics_of(state: ClusterState) -> RecordedMetrics:
    """Return the metrics of autoscalers, which stay as they are."""
    metrics = RecordedMetrics(state.moment)
    resources = (REPLICA_SETS, PODS, HORIZONTAL_POD_AUTOSCALERS) if state.of(HORIZONTAL_POD_AUTOSCALERS) else ()
    for resource in resources:
        for obj in state.of(resource).values():
            metrics.observe(0.0, resource, obj)
    return metrics


@contextlib.asynccontextmanager
async def running_copy(
    state: ClusterState,
    *,
    configuration: SchedulerConfiguration | None,
    pod_markers: Callable[[JSON], Mapping[str, str]],
    seed: int = 0,
) -> AsyncIterator[ClusterCopy]:
    """Run a copy of the cluster for the length of the context, on a loop in virtual time.

    state: as prepared() returns it. configuration: of the scheduler; None for the default one, under the names of the
    pods' schedulers. pod_markers: see `NodeSettings`. A crash inside raises out of the context, in an ExceptionGroup.
    """
    clock, rng = VirtualClock(start=state.moment), random.Random(seed)
    gates = gates_of(state)
    serving = ServingSettings(
        feature_gates=gates,
        authorization_modes=(ALWAYS_ALLOW,),
        watches=WatchSettings(bookmark_seconds=math.inf, min_seconds=_NEVER_SECONDS),
        root_ca="",
    )
    api = ApiServer(clock=clock, rng=random.Random(rng.getrandbits(64)), token=None, settings=serving)
    _load(api, state)
    client = ApiClient(MemoryTransport(api.handle), clock=clock, rng=random.Random(rng.getrandbits(64)))
    nodes = NodeSettings(
        count=0,
        start_delay_seconds=1.0,
        start_delay_spread_seconds=0.0,
        status_report_seconds=_NEVER_SECONDS,
        heartbeats_on_read=True,
        job_run_seconds=_NEVER_SECONDS,
        command_exits=False,
        events=False,
        pod_markers=pod_markers,
        awaits_objects=False,
        adopts_at_once=False,
    )
    settings = Settings(
        controllers=CONTROLLERS,
        development=True,
        # without missed events, pods that nothing has changed for are not tried again
        scheduler=msgspec.structs.replace(
            configuration or default_configuration(gates), pod_max_in_unschedulable_seconds=_NEVER_SECONDS
        ),
        feature_gates=gates,
        event_reasons=_EVENT_REASONS,
    )
    async with running_cluster(api, nodes, [], token=None, clock=clock, rng=rng):
        if DEFAULT_CLASS not in state.of(STORAGE_CLASSES):
            api.store.delete(STORAGE_CLASSES, "", DEFAULT_CLASS)
        await _create(client, state)
        metrics = metrics_of(state)
        scheduler_writes = SchedulerWrites(api.handle)
        transport = MetricsTransport(scheduler_writes, metrics, api.store, clock)
        async with run_control_plane(api, settings, clock=clock, rng=rng, transport=transport) as plane:
            yield ClusterCopy(api, plane, client, clock, metrics, scheduler_writes)


def _load(api: ApiServer, state: ClusterState) -> None:
    """Store the objects of an API server, also in the place of those that each cluster has."""
    for resource in RECORDED:
        objects = state.of(resource)
        if not objects or resource in _NOT_COPIED:
            continue
        table = api.store.table(resource)
        for key, obj in objects.items():
            if "uid" not in obj["metadata"]:
                continue
            before = table.get(key)
            if before is not None:
                table.delete(before)
            table.create(key, obj)


async def _create(client: ApiClient, state: ClusterState) -> None:
    """Create the objects that no API server has stored yet. Raises UserError for one that is refused."""
    for resource in RECORDED:
        if resource in _NOT_COPIED:
            continue
        plain = msgspec.structs.replace(resource, type=dict)
        namespaces = {"default"}
        for key, obj in state.of(resource).items():
            if "uid" in obj["metadata"]:
                continue
            namespace = obj["metadata"].get("namespace", "")
            try:
                if namespace and namespace not in namespaces:
                    namespaces.add(namespace)
                    await _create_namespace(client, namespace)
                await client.create(plain, obj, namespace)
            except AlreadyExists:
                continue  # each cluster has it
            except ApiError as error:
                raise UserError(
                    f"{resource.singular} {key} of the input is refused: {error.message}", hint="correct the object"
                ) from None


async def _create_namespace(client: ApiClient, name: str) -> None:
    """Create a namespace, unless it exists."""
    with contextlib.suppress(AlreadyExists):
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


# --- preparation ----------------------------------------------------------------------------------------------------


def prepared(state: ClusterState, place: str) -> tuple[ClusterState, list[Finding]]:
    """Return the objects as the copy needs them, and what that means for the result.

    Owners that are not in the state would let the garbage collector delete their objects: such references are removed.
    Nodes that are not ready stay so.
    """
    uids = {obj["metadata"].get("uid") for objects in state.objects.values() for obj in objects.values()}
    unknown: Counter[str] = Counter()
    result = ClusterState(state.moment)
    for name, objects in state.objects.items():
        result.objects[name] = {key: _without_unknown_owners(obj, uids, unknown) for key, obj in objects.items()}
    nodes = result.objects.get(NODES.group_resource, {})
    for key, node in nodes.items():
        nodes[key] = _with_failure(node)
    findings = [
        Finding(
            place,
            f"{count} {'objects are' if count > 1 else 'object is'} of a {kind} that the input does not have",
            "they stay as they are, and nothing replaces their pods",
        )
        for kind, count in sorted(unknown.items())
    ]
    return result, findings


def _without_unknown_owners(obj: JSON, uids: set[str | None], unknown: Counter[str]) -> JSON:
    metadata = obj["metadata"]
    references = metadata.get("ownerReferences")
    if not references:
        return obj
    known = [reference for reference in references if reference.get("uid") in uids]
    if len(known) == len(references):
        return obj
    for reference in references:
        if reference.get("controller") and reference.get("uid") not in uids and reference.get("kind") != NODES.kind:
            unknown[str(reference.get("kind"))] += 1
    metadata = {name: value for name, value in metadata.items() if name != "ownerReferences"}
    return {**obj, "metadata": {**metadata, **({"ownerReferences": known} if known else {})}}


def _with_failure(node: JSON) -> JSON:
    """Return a Node with the annotation of its failure, if its condition Ready is not True."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((condition for condition in conditions if condition.get("type") == "Ready"), None)
    if ready is None or ready.get("status") == "True":
        return node
    mode = "unreachable" if ready.get("status") == "Unknown" else "not-ready"
    annotations = {**(node["metadata"].get("annotations") or {}), ANNOTATION_FAIL: mode}
    return {**node, "metadata": {**node["metadata"], "annotations": annotations}}


def other_schedulers(state: ClusterState, configuration: SchedulerConfiguration) -> Counter[str]:
    """Return the number of pods without a node that wait for a scheduler without a profile, by its name."""
    profiles = {profile.scheduler_name for profile in configuration.profiles}
    return Counter(
        name
        for pod in state.of(PODS).values()
        if not pod["spec"].get("nodeName")
        and (name := pod["spec"].get("schedulerName") or "default-scheduler") not in profiles
    )
