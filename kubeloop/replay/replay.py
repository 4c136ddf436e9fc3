"""A recorded cluster that runs again in memory and in virtual time.

The recording's users act at their times; controllers, scheduler and simulated nodes do the rest. Pods start, run and
fail as their workload's pods did in the recording. The same recording, settings and seed give the same run.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubeloop.devcluster.api.conditions import condition_of, is_true
from kubeloop.devcluster.controllers.volume_provisioner import DEFAULT_CLASS
from kubeloop.devcluster.serializer.decoding import decode
from kubeloop.devcluster.serializer.defaulting import apply_defaults
from kubeloop.devcluster.server.faults import SPARED_USER_AGENT
from kubeloop.devcluster.storage.store import Change, ObjectStore, key_of
from kubeloop.kube.client.api_client import ApiClient, DeleteArguments, PatchType
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.errors import ApiError
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import JOBS, NODES, PODS, REPLICA_SETS, STORAGE_CLASSES, Resource
from kubeloop.kube.uids import new_uid
from kubeloop.kube.user_error import UserError
from kubeloop.planning.cluster_copy import RunningCluster
from kubeloop.planning.fit import fewest_nodes
from kubeloop.planning.memory_guard import memory_guard
from kubeloop.planning.plan_changes import Drain, PlanChanges, make_changes, named_node
from kubeloop.planning.recorded_metrics import MetricsTransport
from kubeloop.planning.result import FitResult
from kubeloop.planning.workloads import is_pending
from kubeloop.process.signals import first_of
from kubeloop.recording.changes import Finding, Recording
from kubeloop.recording.resources import recorded_resource
from kubeloop.replay.measurement import Measurement
from kubeloop.replay.recorded_pace import PacedTransport
from kubeloop.replay.user_actions import RecordedDay, UserAction, as_node
from kubeloop.replay.workloads import Workloads
from kubeloop.testing.assembly import run_api_server, run_control_plane
from kubeloop.testing.cluster_options import ClusterOptions, cluster_options
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.virtual_time import VirtualClock, run

if TYPE_CHECKING:
    from kubeloop.tracing.export.exporters import TraceExporter

SAMPLES: Final = 288  # of a run, at equal intervals: each five minutes of a day
POOL_SAMPLES: Final = 3  # each third one has the use of the pools
_DISABLED_PLUGINS: Final = "ServiceAccount,PodSecurity,RuntimeClass,MutatingAdmissionWebhook,ValidatingAdmissionWebhook"
# the recording has the time at which a node was lost: the controller only taints it, at its next check
_CONTROLLER_OPTIONS: Final = {"node_monitor_grace_period": 1e9, "node_monitor_period": 1.0}
_OWNERS: Final = (REPLICA_SETS, JOBS)  # between pods and their topmost owner
_NO_CHANGES: Final = PlanChanges()


class ReplayResult(msgspec.Struct):
    """A finished run of so many seconds. findings: about requests of users that the server refused, and drains.

    fit: the nodes that were added for `PlanChanges.fit`.
    """

    name: str
    seconds: float
    measurement: Measurement
    findings: list[Finding]
    fit: FitResult | None = None


def replay_options(scheduler_config: str, *, seed: int) -> ClusterOptions:
    """Return the options of the cluster. scheduler_config: a file, "" for the default. Raises UserError.

    Admission accepts what the recorded server has accepted: ServiceAccounts, Pod Security levels and RuntimeClasses are
    not part of a recording, and webhooks cannot be called.
    """
    return cluster_options(
        {
            "nodes": 0,
            "seed": seed,
            "command_exits": False,
            "scheduler_config": scheduler_config,
            "enable_admission_plugins": "NamespaceAutoProvision",
            "disable_admission_plugins": _DISABLED_PLUGINS,
        }
    )


def replay(
    day: RecordedDay,
    name: str,
    options: ClusterOptions,
    *,
    changes: PlanChanges = _NO_CHANGES,
    exporter: TraceExporter | None = None,
) -> ReplayResult:
    """Run the recorded day. changes: made at its start; of `changes.fit`, the run with the fewest nodes is returned.

    Raises UserError for invalid options, such as plugins that cannot be loaded, for impossible changes, and when no
    memory is left.
    """

    def replay_with(count: int) -> tuple[ReplayResult, list[JSON]]:
        changed = msgspec.structs.replace(changes, fit_nodes=count)
        try:
            return run(_Replay(day, name, options, changed, exporter).run())
        except ExceptionGroup as group:
            raise first_of(group, UserError) or group from None

    if not changes.fit:
        return replay_with(0)[0]
    nodes = {node["metadata"]["name"]: node for resource, node in day.initial if resource is NODES}
    fit, result = fewest_nodes(named_node(nodes, changes.fit, "--fit"), replay_with)
    result.fit = fit
    return result


def measure_recording(recording: Recording, day: RecordedDay) -> ReplayResult:
    """Return what the recording itself shows, in the form of a replay's result."""
    workloads = Workloads()
    measurement = Measurement(workloads.name_of)
    step = day.seconds / SAMPLES
    number = 0
    for change in recording.changes():
        obj = change.object
        if obj is None:
            continue
        while not change.initial and change.seconds > number * step and number < SAMPLES:
            measurement.sample(number * step, with_pools=number % POOL_SAMPLES == 0)
            number += 1
        workloads.add(obj)
        resource = recorded_resource(change.resource)
        if resource is NODES:
            (measurement.node_deleted if change.type == "DELETED" else measurement.node_changed)(obj)
        elif resource is PODS and change.type == "DELETED":
            measurement.pod_deleted(change.seconds, obj)
        elif resource is PODS:
            measurement.pod_changed(change.seconds, obj, initial=change.initial)
    measurement.finish(day.seconds)
    measurement.sample(day.seconds)
    return ReplayResult("recorded", day.seconds, measurement, [])


class _Replay:
    def __init__(
        self,
        day: RecordedDay,
        name: str,
        options: ClusterOptions,
        changes: PlanChanges,
        exporter: TraceExporter | None,
    ) -> None:
        self._day = day
        self._name = name
        self._options = options
        self._changes = changes
        self._exporter = exporter
        self._workloads = Workloads()
        self._measurement = Measurement(self._workload_of)
        self._numbers = Counter[str]()  # of pods that each workload has created
        self._markers: dict[str, Mapping[str, str]] = {}  # by uid of the pod
        self._medians = day.times.medians()
        self._refused: dict[str, list[str]] = {}  # subjects of refused requests, by message
        self._is_loading = True

    async def run(self) -> tuple[ReplayResult, list[JSON]]:
        """Return the result, and the pods at its end for which the scheduler has no node."""
        day, clock = self._day, VirtualClock(start=self._day.start)
        # the recording may be of a kubeloop with the same seed, whose uids must not return
        rng = random.Random(f"replay/{self._options.seed}")
        settings = self._options.settings()
        settings = msgspec.structs.replace(
            settings,
            scheduler=msgspec.structs.replace(settings.scheduler, attempt_seconds=day.times.attempt_seconds()),
            controller_options=_CONTROLLER_OPTIONS,
            event_reasons=frozenset(),  # nothing reads them
        )
        async with (
            run_api_server(self._options, clock=clock, rng=rng, pod_markers=self._markers_of) as api,
            memory_guard(api.store, day.name),
        ):
            unsubscribe = [
                api.store.subscribe(NODES, self._node_changed),
                api.store.subscribe(PODS, self._pod_changed),
                *(api.store.subscribe(resource, self._owner_changed) for resource in _OWNERS),
            ]
            self._load(api.store, rfc3339(day.start), rng)
            paced = PacedTransport(api.handle, day.times, day.taints, self._workloads.name_of)
            transport = MetricsTransport(paced, day.metrics, api.store, clock)
            async with run_control_plane(
                api, settings, clock=clock, rng=rng, exporter=self._exporter, transport=transport
            ):
                client = ApiClient(
                    MemoryTransport(api.handle),
                    clock=clock,
                    rng=random.Random(rng.getrandbits(64)),
                    user_agent=SPARED_USER_AGENT,
                    in_process=True,
                )
                changes_rng = random.Random(f"changes/{self._options.seed}")
                cluster = RunningCluster(api.store, client, clock)
                drain = (await make_changes(cluster, self._changes, changes_rng, is_projected=True)).drain
                async with asyncio.TaskGroup() as tasks:
                    background = [
                        tasks.create_task(self._sample_forever(), name="replay/samples"),
                        tasks.create_task(drain.run(), name="replay/drain"),
                    ]
                    for action in day.actions:
                        await _sleep_until(action.seconds)
                        await self._act(client, api.store, action)
                    await _sleep_until(day.seconds)
                    for task in background:
                        task.cancel()
                unschedulable = [pod for pod in api.store.list(PODS) if _is_unschedulable(pod)]
                for stop in unsubscribe:
                    stop()
        self._measurement.finish(day.seconds)
        self._measurement.sample(day.seconds)
        return ReplayResult(self._name, day.seconds, self._measurement, self._findings(drain)), unschedulable

    async def _sample_forever(self) -> None:
        step = self._day.seconds / SAMPLES
        for number in range(SAMPLES):
            await _sleep_until(number * step)
            self._measurement.sample(number * step, with_pools=number % POOL_SAMPLES == 0)

    # --- state at the start ------------------------------------------------------------------------------------------

    def _load(self, store: ObjectStore, now: str, rng: random.Random) -> None:
        """Store the objects that existed at the start, with their uids."""
        store.delete(STORAGE_CLASSES, "", DEFAULT_CLASS)
        for resource, recorded in self._day.initial:
            obj = recorded if resource is not NODES else _initial_node(recorded)
            stored = _as_stored(resource, obj, now, rng)
            if store.table(resource).get(key_of(stored)) is None:
                store.create(resource, stored)
        self._is_loading = False

    # --- changes -----------------------------------------------------------------------------------------------------

    def _owner_changed(self, change: Change) -> None:
        self._workloads.add(change.now.object)

    def _node_changed(self, change: Change) -> None:
        deleted = change.type == "DELETED"
        (self._measurement.node_deleted if deleted else self._measurement.node_changed)(change.now.object)

    def _pod_changed(self, change: Change) -> None:
        pod, now = change.now.object, asyncio.get_running_loop().time()
        if change.type == "DELETED":
            self._measurement.pod_deleted(now, pod)
            self._markers.pop(pod["metadata"]["uid"], None)
            return
        pod_run = self._measurement.pod_changed(now, pod, initial=self._is_loading)
        if change.type == "ADDED":
            self._markers[pod["metadata"]["uid"]] = self._recorded_markers(pod, pod_run.workload)

    def _workload_of(self, pod: JSON) -> str:
        recorded = self._day.workload_of.get(key_of(pod))
        return recorded if recorded is not None else self._workloads.name_of(pod)

    # --- times of pods -----------------------------------------------------------------------------------------------

    def _recorded_markers(self, pod: JSON, workload: str) -> Mapping[str, str]:
        times = self._day.times
        if self._is_loading:
            recorded = times.of_initial(pod["metadata"]["uid"])
        else:
            recorded = times.of(workload, self._numbers[workload])
            self._numbers[workload] += 1
        markers = {} if recorded is None else recorded.markers()
        medians = (self._medians[name].markers() for name in ("", workload) if name in self._medians)
        return {name: value for values in (*medians, markers) for name, value in values.items()}

    def _markers_of(self, pod: JSON) -> Mapping[str, str]:
        return self._markers.get(pod["metadata"]["uid"], {})

    # --- users -------------------------------------------------------------------------------------------------------

    async def _act(self, client: ApiClient, store: ObjectStore, action: UserAction) -> None:
        """Send one request. A refusal is a finding."""
        resource, namespace, name = action.resource, action.namespace, action.name
        try:
            match action.type:
                case "create":
                    await client.create_raw(resource, action.body, namespace)
                case "patch" | "patch status":
                    subresource = "status" if action.type == "patch status" else ""
                    patch = PatchType.MERGE
                    await client.patch(resource, name, action.body, patch, namespace, subresource=subresource)
                case "delete":
                    grace: DeleteArguments = {"propagation_policy": "Background"}
                    if "gracePeriodSeconds" in action.body:
                        grace["grace_period_seconds"] = action.body["gracePeriodSeconds"]
                    await client.delete(resource, name, namespace, **grace)
                case "lose node":
                    await self._lose_node(client, store, action)
                case "evict" | "delete replaced":
                    await self._remove_replaced(client, store, action)
        except ApiError as error:
            subject = f"{action.type} {resource.group_resource} {namespace + '/' if namespace else ''}{name}"
            self._refused.setdefault(error.reason or str(error.code), []).append(f"{subject}: {error}")

    async def _lose_node(self, client: ApiClient, store: ObjectStore, action: UserAction) -> None:
        """Write what the node lifecycle controller writes when the heartbeats of a node are missing, but for taints."""
        merge = PatchType.MERGE
        await client.patch(NODES, action.name, action.body, merge, subresource="status")
        for pod in store.list(PODS):
            if pod["spec"].get("nodeName") == action.name and is_true(pod, "Ready"):
                conditions = [
                    {**it, "status": "False"} if it["type"] == "Ready" else it for it in pod["status"]["conditions"]
                ]
                metadata, status = pod["metadata"], {"status": {"conditions": conditions}}
                await client.patch(PODS, metadata["name"], status, merge, metadata["namespace"], subresource="status")

    async def _remove_replaced(self, client: ApiClient, store: ObjectStore, action: UserAction) -> None:
        """Evict a pod of the workload from the node, if it has one there; or delete one, preferably on the node."""
        pods = [
            pod
            for pod in store.list(PODS, action.namespace)
            if "deletionTimestamp" not in pod["metadata"] and self._workload_of(pod) == action.workload
        ]
        names = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName", "") == action.node]
        if action.type == "delete replaced":
            names = names or [pod["metadata"]["name"] for pod in pods]
        if not names:
            return
        name = action.name if action.name in names else min(names)
        if action.type == "evict":
            metadata = {"name": name, "namespace": action.namespace}
            eviction: JSON = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
            await client.create_raw(PODS, eviction, action.namespace, name=name, subresource="eviction")
        else:
            await client.delete(PODS, name, action.namespace, grace_period_seconds=action.body["gracePeriodSeconds"])

    def _findings(self, drain: Drain) -> list[Finding]:
        place = self._day.name
        blocked = [
            Finding(place, f"it is not evicted from {it.node}: {it.reason}", "the drain never ends", f"pod {it.pod}")
            for it in drain.blocked()
        ]
        refused = [
            Finding(
                place,
                f"{len(subjects)} requests of users were refused ({reason})",
                "the replay goes on without them",
                subjects[0],
            )
            for reason, subjects in sorted(self._refused.items())
        ]
        return [*drain.findings(place), *blocked, *refused]


async def _sleep_until(seconds: float) -> None:
    await asyncio.sleep(max(0.0, seconds - asyncio.get_running_loop().time()))


def _is_unschedulable(pod: JSON) -> bool:
    """Return True for a pod whose last scheduling attempt has failed."""
    condition = condition_of(pod, "PodScheduled")
    return is_pending(pod) and condition is not None and condition.get("reason") == "Unschedulable"


def _initial_node(recorded: JSON) -> JSON:
    """Return a simulated node with the uid of the recorded one; conditions and taints stay if that is not ready."""
    node = as_node(recorded)
    node["metadata"]["uid"] = recorded["metadata"].get("uid", "")
    ready = condition_of(recorded, "Ready")
    if ready is not None and ready.get("status") != "True":
        node["status"]["conditions"] = recorded["status"]["conditions"]
        node["spec"]["taints"] = recorded["spec"].get("taints") or []
    return node


def _as_stored(resource: Resource[Any], obj: JSON, now: str, rng: random.Random) -> JSON:
    """Return a recorded object as the API server stores it."""
    decoded, _ = decode(resource, obj)
    apply_defaults(resource, decoded)
    metadata = decoded["metadata"]
    metadata["uid"] = metadata.get("uid") or new_uid(rng)
    metadata.setdefault("creationTimestamp", now)
    head = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    return head | {name: value for name, value in decoded.items() if name not in head}
