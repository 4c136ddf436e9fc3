"""Actions of users while a cluster was recorded, and the objects that it had at the start.

Users act on objects that no controller of kubeloop manages: they create, change and delete them, evict pods, and add,
cordon, lose and remove nodes. What controllers and scheduler wrote is left out, since they do it again. Objects of
controllers that kubeloop does not run count as the users' own. HorizontalPodAutoscalers scale again, by the metrics
that they saw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from kubeloop.devcluster.api.conditions import condition_of, is_true
from kubeloop.devcluster.controllers.volume_provisioner import PROVISION_SECONDS
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import (
    CRON_JOBS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    REPLICA_SETS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Resource,
)
from kubeloop.planning.recorded_metrics import RecordedMetrics, target_of
from kubeloop.recording.changes import Finding, RecordedChange, Recording
from kubeloop.recording.memory import MemoryLimit
from kubeloop.recording.reader import RecordingFile
from kubeloop.recording.resources import recorded_resource
from kubeloop.recording.sources.collected import CollectedRecording
from kubeloop.recording.validation import check_object
from kubeloop.replay.pod_deletions import PodDeletions
from kubeloop.replay.pod_times import WorkloadTimes
from kubeloop.replay.provisioning_times import ProvisioningTimes
from kubeloop.replay.recorded_pace import NODE_TAINTS, TaintTimes
from kubeloop.replay.workloads import Workloads, controller_of, is_run_here

ActionType = Literal["create", "patch", "patch status", "delete", "evict", "delete replaced", "lose node"]
NODE_LOST_SECONDS: Final = (
    50.0  # from the last heartbeat of a node to its condition Unknown: default of --node-monitor-grace-period
)

_OWNERS: Final = frozenset(it.group_resource for it in (REPLICA_SETS, JOBS, CRON_JOBS, DEPLOYMENTS, STATEFUL_SETS))
_NOT_REPLAYED: Final = frozenset({VOLUME_ATTACHMENTS.group_resource})
_STATUS_SECONDS: Final = 5.0  # an autoscaler writes its status at most so long after it has scaled
_WRITTEN_BY_CONTROLLERS: Final = (
    "deployment.kubernetes.io/",
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
    "batch.kubernetes.io/",
    "node.alpha.kubernetes.io/",
    "kubeloop.dev/fail",
)
_DISRUPTIONS: Final = (
    "PreemptionByScheduler",
    "DeletionByTaintManager",
    "DeletionByDeviceTaintManager",
    "DeletionByPodGC",
)
_SERVER_METADATA: Final = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
_FAIL: Final = "kubeloop.dev/fail"


class UserAction(NamedTuple):
    """One request of a user. body: the object, a merge patch, or the grace period. workload, node: whose pod is evicted
    or deleted, and where, if a controller here replaces it. "lose node": a write of the node lifecycle controller."""

    seconds: float
    type: ActionType
    resource: Resource[Any]
    namespace: str
    name: str
    body: JSON
    workload: str = ""
    node: str = ""


class RecordedDay(msgspec.Struct):
    """A recording, prepared for replays.

    seconds: its length. initial: objects at the start, in the order of their resources. workload_of: names of the
    workloads of pods whose controller does not run here, by "namespace/name". metrics: of autoscalers.
    """

    name: str
    start: datetime
    seconds: float
    initial: list[tuple[Resource[Any], JSON]]
    actions: list[UserAction]
    times: WorkloadTimes
    taints: TaintTimes
    workload_of: Mapping[str, str]
    metrics: RecordedMetrics
    findings: list[Finding]


def read_file(recording: RecordingFile | CollectedRecording) -> RecordedDay:
    """Read a recorded day up to its end. Raises UserError for one that cannot be read."""
    limit = None
    if isinstance(recording, CollectedRecording):
        recording.set_uids()
    else:
        limit = recording.limit
    day = read_day(recording, limit)
    day.seconds = max(day.seconds, recording.seconds)
    return day


def read_day(recording: Recording, limit: MemoryLimit | None = None) -> RecordedDay:
    """Read a recording up to its last change. Raises UserError for one that cannot be read, or exceeds the limit."""
    reader = _Reader(recording.start, limit or MemoryLimit(recording.name))
    for change in recording.changes():
        try:
            reader.read(change)
        except Exception:
            resource = recorded_resource(change.resource)
            if resource is not None and change.object is not None:
                check_object(resource, change.object, recording.name)  # of lines whose checksum comes later
            raise
    reader.drop_scale_steps()
    reader.finish()
    reader.actions.sort(key=lambda action: action.seconds)
    return RecordedDay(
        name=recording.name,
        start=recording.start,
        seconds=reader.seconds,
        initial=reader.initial,
        actions=reader.actions,
        times=reader.times,
        taints=reader.taints,
        workload_of=reader.workload_of,
        metrics=reader.metrics,
        findings=[*recording.findings, *reader.metrics.findings(recording.name)],
    )


class _Reader:
    def __init__(self, start: datetime, limit: MemoryLimit) -> None:
        self._limit = limit
        self.seconds = 0.0
        self.initial: list[tuple[Resource[Any], JSON]] = []
        self.actions: list[UserAction] = []
        self.times = WorkloadTimes()
        self.taints = TaintTimes()
        self.workload_of: dict[str, str] = {}
        self.metrics = RecordedMetrics(start)
        self._workloads = Workloads()
        self._reported: dict[str, float] = {}  # last time at which each node reported that a pod is ready
        self._deletions = PodDeletions()
        self._provisioning = ProvisioningTimes()
        self._claims_of_sets: set[tuple[str, str]] = set()  # namespace and name without ordinal
        self._deleted: set[str] = set()  # uids of objects whose deletion has been requested
        self._steps: list[UserAction] = []  # changes of replicas, not from or to 0
        self._scaled: dict[tuple[str, str], list[tuple[float, int]]] = {}  # replicas by namespace and target

    def read(self, change: RecordedChange) -> None:
        self.seconds = max(self.seconds, change.seconds)
        obj, resource = change.object, recorded_resource(change.resource)
        if obj is None or resource is None:
            return
        if change.resource in _OWNERS:
            self._workloads.add(obj)
        self.metrics.observe(change.seconds, resource, obj, deleted=change.type == "DELETED")
        if resource is STATEFUL_SETS:
            self._claims_of_sets |= _claim_prefixes(obj)
        elif resource is PERSISTENT_VOLUME_CLAIMS:
            self._provisioning.observe(change.seconds, obj, initial=change.initial)
        self._deletions.read(change)
        self._add_deletions(change.seconds)
        if resource is PODS:
            workload = self._workloads.name_of(obj)
            self.times.observe(change.seconds, obj, workload, initial=change.initial)
            if change.type == "DELETED":
                self.times.deleted(change.seconds, obj)
            owner = controller_of(obj)
            if owner is not None and not is_run_here(owner):
                self.workload_of[change.key] = workload
            if change.type == "MODIFIED" and change.before is not None:
                self._read_eviction(change, obj, workload)
                if is_true(obj, "Ready") and not is_true(change.before, "Ready"):
                    self._reported[obj["spec"].get("nodeName", "")] = change.seconds
        if resource is HORIZONTAL_POD_AUTOSCALERS and change.type != "DELETED":
            self._read_autoscaler(change, obj)
        if change.resource in _NOT_REPLAYED:
            return
        if change.initial:
            self.initial.append((resource, obj))
        elif resource is NODES:
            self._read_node(change, obj)
        elif _is_managed_by_users(resource, obj):
            self._read_object(change, resource, obj)

    # --- autoscalers -------------------------------------------------------------------------------------------------

    def _read_autoscaler(self, change: RecordedChange, autoscaler: JSON) -> None:
        status, before = autoscaler.get("status") or {}, (change.before or {}).get("status") or {}
        if status.get("lastScaleTime") != before.get("lastScaleTime"):
            key = autoscaler["metadata"].get("namespace", ""), target_of(autoscaler)
            self._scaled.setdefault(key, []).append((change.seconds, status.get("desiredReplicas") or 0))

    def drop_scale_steps(self) -> None:
        """Remove what autoscalers have done: they set the replicas, then write them to their status with the time."""
        for action in self._steps:
            replicas = action.body["spec"]["replicas"]
            scaled = self._scaled.get((action.namespace, f"{action.resource.kind}/{action.name}"), ())
            if any(number == replicas and abs(at - action.seconds) <= _STATUS_SECONDS for at, number in scaled):
                del action.body["spec"]["replicas"]
        self.actions = [action for action in self.actions if action.body != {"spec": {}}]

    def finish(self) -> None:
        """Complete the actions with what only the whole recording shows."""
        self._add_deletions(math.inf)
        self.actions = [it for it in self.actions if it.type != "create" or not self._is_claim_of_set(it)]
        for resource, obj in (*self.initial, *((it.resource, it.body) for it in self.actions if it.type == "create")):
            if (
                resource is STORAGE_CLASSES
                and (seconds := self._provisioning.median(obj["metadata"]["name"])) is not None
            ):
                annotations = {**(obj["metadata"].get("annotations") or {}), PROVISION_SECONDS: f"{seconds:.3f}"}
                obj["metadata"] = {**obj["metadata"], "annotations": annotations}

    def _is_claim_of_set(self, action: UserAction) -> bool:
        """Return True for a claim that a StatefulSet creates: the claim has no reference to it."""
        prefix, _, ordinal = action.name.rpartition("-")
        is_claim = action.resource is PERSISTENT_VOLUME_CLAIMS and ordinal.isdecimal()
        return is_claim and (action.namespace, prefix) in self._claims_of_sets

    def _add_deletions(self, seconds: float) -> None:
        """Add the deletions by users, decided by then, of pods that a controller here replaces."""
        for deletion in self._deletions.decided(seconds):
            metadata, node = deletion.pod["metadata"], deletion.pod["spec"].get("nodeName", "")
            body = {"gracePeriodSeconds": metadata.get("deletionGracePeriodSeconds", 0)}
            place = (PODS, metadata["namespace"], metadata["name"])
            workload = self._workloads.name_of(deletion.pod)
            self.actions.append(UserAction(deletion.seconds, "delete replaced", *place, body, workload, node))

    # --- objects -----------------------------------------------------------------------------------------------------

    def _add(self, type_: ActionType, change: RecordedChange, resource: Resource[Any], obj: JSON, body: JSON) -> None:
        metadata = obj["metadata"]
        action = UserAction(change.seconds, type_, resource, metadata.get("namespace", ""), metadata["name"], body)
        self.actions.append(action)
        self._limit.add(len(msgspec.json.encode(body)), decoded_only=True)

    def _read_object(self, change: RecordedChange, resource: Resource[Any], obj: JSON) -> None:
        if change.type == "ADDED":
            self._add("create", change, resource, obj, _as_created(resource, obj))
        elif change.type == "DELETED":
            self._read_deletion(change, resource, obj)
        elif change.before is not None:
            if obj["metadata"].get("deletionTimestamp"):
                self._read_deletion(change, resource, obj)
            elif patch := _changes_of_users(resource, change.before, obj):
                self._add("patch", change, resource, obj, patch)
                if _replicas(change.before) and _replicas(patch):
                    self._steps.append(self.actions[-1])

    def _read_deletion(self, change: RecordedChange, resource: Resource[Any], obj: JSON) -> None:
        uid = obj["metadata"].get("uid", change.key)
        if uid in self._deleted:
            return
        self._deleted.add(uid)
        if resource is PODS and _disruption(obj) in _DISRUPTIONS:
            return
        grace = obj["metadata"].get("deletionGracePeriodSeconds")
        self._add("delete", change, resource, obj, {} if grace is None else {"gracePeriodSeconds": grace})

    def _read_eviction(self, change: RecordedChange, obj: JSON, workload: str) -> None:
        """Record the eviction of a pod that a controller here replaces."""
        assert change.before is not None
        owner = controller_of(obj)
        if owner is None or not is_run_here(owner):
            return
        if _disruption(obj) == "EvictionByEvictionAPI" != _disruption(change.before):
            metadata, node = obj["metadata"], obj["spec"].get("nodeName", "")
            namespace, name = metadata["namespace"], metadata["name"]
            self.actions.append(UserAction(change.seconds, "evict", PODS, namespace, name, {}, workload, node))

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _read_node(self, change: RecordedChange, node: JSON) -> None:
        if change.type == "ADDED":
            self._add("create", change, NODES, node, as_node(node))
            return
        if change.type == "DELETED":
            self._add("delete", change, NODES, node, {})
            return
        before = change.before
        assert before is not None
        self.taints.observe(change.seconds, before, node)
        patch = _changes_of_users(NODES, before, node)
        failure = _failure(node)
        if failure != _failure(before):
            annotations = patch.setdefault("metadata", {}).setdefault("annotations", {})
            annotations[_FAIL] = failure or None
            if not failure:
                self.times.node_returned(change.seconds, node["metadata"]["name"])
        if patch:
            name, seconds = node["metadata"]["name"], change.seconds
            if failure == "unreachable" != _failure(before):
                # the heartbeats ended before the condition became Unknown, but not before the last report of a pod
                seconds = max(0.0, seconds - NODE_LOST_SECONDS, self._reported.get(name, 0.0))
                conditions = {"status": {"conditions": node["status"]["conditions"]}}
                self._add("lose node", change, NODES, node, conditions)
            self.actions.append(UserAction(seconds, "patch", NODES, "", name, patch))
        status = _merge_patch(_sizes(before), _sizes(node))
        if status:
            self._add("patch status", change, NODES, node, {"status": status})


def _claim_prefixes(stateful_set: JSON) -> set[tuple[str, str]]:
    """Return namespace, and name without ordinal, of the claims that a StatefulSet creates."""
    metadata, templates = stateful_set["metadata"], stateful_set["spec"].get("volumeClaimTemplates") or ()
    return {(metadata["namespace"], f"{it['metadata']['name']}-{metadata['name']}") for it in templates}


def _is_managed_by_users(resource: Resource[Any], obj: JSON) -> bool:
    if resource is PERSISTENT_VOLUMES:
        return "pv.kubernetes.io/provisioned-by" not in (obj["metadata"].get("annotations") or {})
    owner = controller_of(obj)
    return owner is None or not is_run_here(owner)


def _replicas(obj: JSON) -> int:
    return (obj.get("spec") or {}).get("replicas") or 0


def _disruption(pod: JSON) -> str:
    """Return the reason of the condition DisruptionTarget, "" without it."""
    condition = condition_of(pod, "DisruptionTarget")
    return condition.get("reason", "") if condition is not None and condition.get("status") == "True" else ""


def _failure(node: JSON) -> str:
    """Return the failure mode of a simulated node with this condition Ready."""
    ready = condition_of(node, "Ready")
    return {"Unknown": "unreachable", "False": "not-ready"}.get("" if ready is None else ready.get("status", ""), "")


def _sizes(node: JSON) -> JSON:
    status = node.get("status") or {}
    return {name: status.get(name) or {} for name in ("capacity", "allocatable")}


def as_node(node: JSON) -> JSON:
    """Return a recorded node as a simulated one: its failures are annotations, and its taints follow from them."""
    created = _as_created(NODES, node)
    created["status"] = {
        name: value for name, value in (node.get("status") or {}).items() if name not in ("conditions", "images")
    }
    if failure := _failure(node):
        created["metadata"]["annotations"] = {**(created["metadata"].get("annotations") or {}), _FAIL: failure}
    return created


def _as_created(resource: Resource[Any], obj: JSON) -> JSON:
    """Return an object as a user would create it: without what server, controllers and scheduler have written."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _SERVER_METADATA}
    metadata.pop("finalizers", None)
    if resource is JOBS and "labels" in metadata:
        metadata["labels"] = _without_job_labels(metadata["labels"])
    if resource is not PODS or controller_of(obj) is not None:
        metadata.pop("ownerReferences", None)
    if annotations := _of_users(metadata.get("annotations")):
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)
    created = {**obj, "metadata": metadata}
    created.pop("status", None)
    if "spec" in created:
        created["spec"] = _spec_of_users(resource, created["spec"], metadata)
    return created


def _spec_of_users(resource: Resource[Any], spec: JSON, metadata: JSON) -> JSON:
    spec = dict(spec)
    if resource is PODS:
        spec.pop("nodeName", None)
        spec.pop("priority", None)
        spec.pop("preemptionPolicy", None)
    elif resource is PERSISTENT_VOLUME_CLAIMS:
        if "pv.kubernetes.io/bind-completed" in (metadata.get("annotations") or {}):
            spec.pop("volumeName", None)
    elif resource is PERSISTENT_VOLUMES:
        spec.pop("claimRef", None)
    elif resource is SERVICES:
        if spec.get("clusterIP") != "None":
            spec.pop("clusterIP", None)
            spec.pop("clusterIPs", None)
        spec.pop("healthCheckNodePort", None)
        spec["ports"] = [
            {name: value for name, value in port.items() if name != "nodePort"} for port in spec.get("ports") or ()
        ]
    elif resource is NODES:
        spec["taints"] = [taint for taint in spec.get("taints") or () if not taint["key"].startswith(NODE_TAINTS)]
    elif resource is JOBS and not spec.get("manualSelector"):
        spec.pop("selector", None)
        template = spec.get("template") or {}
        labels = (template.get("metadata") or {}).get("labels") or {}
        metadata = {**(template.get("metadata") or {}), "labels": _without_job_labels(labels)}
        spec["template"] = {**template, "metadata": metadata}
    return spec


def _without_job_labels(labels: Mapping[str, str]) -> JSON:
    """Return the labels without those that the API server gives a Job and its pods."""
    return {name: value for name, value in labels.items() if not name.endswith(("controller-uid", "job-name"))}


def _changes_of_users(resource: Resource[Any], before: JSON, obj: JSON) -> JSON:
    """Return a merge patch with what users have changed, {} for nothing."""
    return _merge_patch(_state_of_users(resource, before), _state_of_users(resource, obj))


def _state_of_users(resource: Resource[Any], obj: JSON) -> JSON:
    state = {name: value for name, value in obj.items() if name not in ("metadata", "status", "kind", "apiVersion")}
    metadata = obj["metadata"]
    state["metadata"] = {
        "labels": metadata.get("labels") or {},
        "annotations": _of_users(metadata.get("annotations")),
    }
    if "spec" in state:
        state["spec"] = _spec_of_users(resource, state["spec"], metadata)
    return state


def _of_users(annotations: Mapping[str, str] | None) -> JSON:
    return {name: value for name, value in (annotations or {}).items() if not name.startswith(_WRITTEN_BY_CONTROLLERS)}


def _merge_patch(before: JSON, after: JSON) -> JSON:
    """Return the JSON merge patch (RFC 7386) from one object to another."""
    patch: JSON = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := _merge_patch(old, value):
                patch[name] = inner
        elif value != old:
            patch[name] = value
    return dict(sorted(patch.items()))
