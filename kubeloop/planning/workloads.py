"""Workloads of pods, and the result of their rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubeloop.controllers.deployment.rolling_update import is_rolling_update, max_unavailable
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import Deployment, Job, RollingUpdateDeployment
from kubeloop.kube.objects.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from kubeloop.planning.cluster_copy import ClusterCopy
from kubeloop.planning.node_pools import pool_of, zone_of
from kubeloop.planning.pod_history import PlannedPod, PodHistory
from kubeloop.planning.result import DisplacedPod, UnplacedPods, WorkloadResult
from kubeloop.planning.run_times import RunTimes, WorkloadKey
from kubeloop.process.workload_progress import WORKLOAD_PROGRESS, WorkloadProgress
from kubeloop.scheduler.explain.pending_pod import explain

_ROLLOUTS: Final[Mapping[str, Resource[Any]]] = {
    resource.kind: resource
    for resource in (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, JOBS, REPLICATION_CONTROLLERS, REPLICA_SETS)
}
_PREEMPTION: Final = "PreemptionByScheduler"
_EVICTIONS: Final[Mapping[str, str]] = {
    "EvictionByEvictionAPI": "evicted by the drain",
    "DeletionByTaintManager": "evicted by a NoExecute taint",
    "DeletionByPodGC": "deleted with its node",
    "DeletionByDeviceTaintManager": "evicted by a taint of its device",
}
_WAIT_SECONDS: Final = 2.0  # shorter waits are not worth a line
_MAX_EXPLAINED: Final = 20  # pods, of one per workload and reason


class WorkloadOutcomes:
    """The results of all workloads at the end of a plan.

    began_at: loop time of the changes. pending_before: UIDs of the pods that were pending then. touched: workloads that
    the changes name.
    """

    def __init__(
        self,
        copy: ClusterCopy,
        history: PodHistory,
        times: RunTimes,
        *,
        began_at: float,
        pending_before: frozenset[str],
        touched: Iterable[WorkloadKey],
    ) -> None:
        self._copy = copy
        self._times = times
        self._began_at = began_at
        self._pending_before = pending_before
        self._touched = set(touched)
        self._nodes = copy.objects(NODES)
        self._pods: dict[WorkloadKey, list[PlannedPod]] = {}
        self._history = history
        for pod in history:
            if pod.object:
                self._pods.setdefault(self._key(pod.object), []).append(pod)
        self._failed_creates = self._creation_failures()
        self._explained: dict[str, UnplacedPods] = {}

    def affected(self) -> list[WorkloadResult]:
        """Return the workloads that are named, or whose pods are created, deleted or newly pending."""
        keys = {
            key
            for key, pods in self._pods.items()
            if any(pod.created_at is not None or pod.deletion_at is not None for pod in pods)
        }
        pending = self._pending_pods()
        keys |= {
            key
            for key, pods in pending.items()
            if any(pod["metadata"]["uid"] not in self._pending_before for pod in pods)
        }
        keys |= self._touched | self._failed_creates.keys()
        results = [self._result(key, pending.get(key, [])) for key in sorted(keys)]
        return [result for result in results if result is not None]

    def pending_before(self) -> list[WorkloadResult]:
        """Return the workloads of which pods are pending as they were before the changes, and nothing else happens."""
        affected = {(result.kind, result.namespace, result.name) for result in self.affected()}
        return [
            WorkloadResult(kind, name, namespace, pending=self._pending(pods), rollout="failed")
            for (kind, namespace, name), pods in sorted(self._pending_pods().items())
            if (kind, namespace, name) not in affected
        ]

    def displaced(self) -> tuple[list[DisplacedPod], list[DisplacedPod]]:
        """Return the pods that are preempted, and those that are evicted or deleted with their node."""
        preempted: list[DisplacedPod] = []
        evicted: list[DisplacedPod] = []
        messages = self._preemption_messages()
        for pod in self._history:
            if pod.deletion_at is None or not pod.node or pod.disruption not in (_PREEMPTION, *_EVICTIONS):
                continue
            kind, namespace, name = self._key(pod.object)
            is_bare = kind == PODS.kind
            reason = messages.get(pod.key) if pod.disruption == _PREEMPTION else None
            displaced = DisplacedPod(
                pod.key,
                "" if is_bare else f"{kind.lower()}/{name} in {namespace}",
                pod.node,
                reason or _EVICTIONS.get(pod.disruption, "preempted by a pod of higher priority"),
                not is_bare,
            )
            (preempted if pod.disruption == _PREEMPTION else evicted).append(displaced)
        return sorted(preempted, key=_order), sorted(evicted, key=_order)

    # --- one workload ------------------------------------------------------------------------------------------------

    def _result(self, key: WorkloadKey, pending: list[JSON]) -> WorkloadResult | None:
        kind, namespace, name = key
        pods = self._pods.get(key, [])
        created = [pod for pod in pods if pod.created_at is not None]
        deleted = [pod for pod in pods if pod.deletion_at is not None]
        present = [pod for pod in created if pod.deletion_at is None]
        placed = [pod for pod in present if pod.node]
        nodes = Counter(pod.node for pod in placed)
        result = WorkloadResult(
            kind,
            name,
            namespace,
            created=len(created),
            deleted=len(deleted),
            placed=len(placed),
            nodes=dict(sorted(nodes.items())),
            pools=self._count(nodes, pool_of),
            zones={zone: count for zone, count in self._count(nodes, zone_of).items() if zone},
            pending=self._pending(pending),
        )
        result.seconds = max(
            (
                moment - self._began_at
                for pod in pods
                for moment in (pod.ready_at, pod.gone_at, pod.bound_at, pod.created_at)
                if moment is not None
            ),
            default=0.0,
        )
        result.waits = self._waits(created, deleted)
        self._judge(result, created)
        return result

    def _judge(self, result: WorkloadResult, created: list[PlannedPod]) -> None:
        """Set the state of the rollout and its reasons."""
        failing = [pod for pod in self._failing_pods(result) if pod]
        result.reasons = [
            f"{pods.count} {'pods are' if pods.count > 1 else 'pod is'} without a node" for pods in result.pending
        ]
        key = (result.kind, result.namespace, result.name)
        result.reasons += self._failed_creates.get(key, [])
        result.reasons += failing
        if unready := sum(bool(pod.node) and pod.ready_at is pod.deletion_at is None for pod in created):
            result.reasons.append(f"{unready} of its new pods have a node, and do not become ready")
        resource = _ROLLOUTS.get(result.kind)
        if resource is None:
            result.rollout = "failed" if result.reasons else "complete"
            return
        workload = self._typed(resource, f"{result.namespace}/{result.name}")
        if workload is None:  # deleted
            result.rollout = "failed" if result.pending else "complete"
            return
        if resource is REPLICA_SETS:
            result.desired = workload.spec.replicas if workload.spec.replicas is not None else 1
            is_complete = workload.status.available_replicas >= result.desired
        else:
            progress: WorkloadProgress = WORKLOAD_PROGRESS[resource](workload)
            result.desired, is_complete = progress.replicas, progress.complete
            if progress.suspended:
                result.rollout = "suspended"
                return
            if progress.failure and progress.failure not in result.reasons:
                result.reasons.append(progress.failure)
        if is_complete:
            result.rollout, result.reasons = "complete", []
        elif isinstance(workload, Job) and not result.reasons:
            result.rollout = "running"
        else:
            result.rollout = "failed"
            result.reasons += _blocked_update(workload, result)

    def _failing_pods(self, result: WorkloadResult) -> list[str]:
        """Return why pods of the workload that have a node are not ready, with their number."""
        reasons = Counter(
            self._times.failing[pod["metadata"]["uid"]]
            for pod in self._copy.objects(PODS).values()
            if pod["metadata"]["uid"] in self._times.failing
            and self._key(pod) == (result.kind, result.namespace, result.name)
        )
        return [
            f"{count} of its pods {'is' if count == 1 else 'are'} {reason} in the input"
            for reason, count in reasons.items()
        ]

    def _typed(self, resource: Resource[Any], key: str) -> Any:
        return self._copy.plane.informers.informer(resource).store.get(key)

    def _waits(self, created: list[PlannedPod], deleted: list[PlannedPod]) -> list[str]:
        """Return what the rollout waits for, the longest first."""
        longest = {
            "readiness": max((p.ready_at - p.bound_at for p in created if p.ready_at and p.bound_at), default=0.0),
            "scheduling": max((p.bound_at - p.created_at for p in created if p.bound_at and p.created_at), default=0.0),
            "termination": max(
                (p.gone_at - p.deletion_at for p in deleted if p.gone_at and p.deletion_at), default=0.0
            ),
        }
        waits = sorted(longest.items(), key=lambda wait: -wait[1])
        return [f"{name} {seconds:.0f} s" for name, seconds in waits if seconds >= _WAIT_SECONDS]

    def _count(self, nodes: Mapping[str, int], of: Any) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for node, count in nodes.items():
            if node in self._nodes:
                counts[of(self._nodes[node])] += count
        return dict(sorted(counts.items()))

    # --- pods --------------------------------------------------------------------------------------------------------

    def _key(self, pod: JSON) -> WorkloadKey:
        metadata = pod["metadata"]
        return self._times.workload_of(pod) or (PODS.kind, metadata.get("namespace", ""), metadata["name"])

    def _pending_pods(self) -> dict[WorkloadKey, list[JSON]]:
        pending: dict[WorkloadKey, list[JSON]] = {}
        for pod in self._copy.objects(PODS).values():
            if is_pending(pod):
                pending.setdefault(self._key(pod), []).append(pod)
        return pending

    def _pending(self, pods: list[JSON]) -> list[UnplacedPods]:
        """Return the pending pods by the scheduler's message, with an explanation of the first of each."""
        by_message: dict[tuple[str, bool], list[JSON]] = {}
        for pod in pods:
            was_pending = pod["metadata"]["uid"] in self._pending_before
            message = self._copy.scheduler_writes.messages.get(pod["metadata"]["uid"]) or _message(pod)
            by_message.setdefault((message, was_pending), []).append(pod)
        return [self._explanation(group, message, was_pending) for (message, was_pending), group in by_message.items()]

    def _explanation(self, pods: list[JSON], message: str, was_pending: bool) -> UnplacedPods:
        metadata = pods[0]["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        if key not in self._explained:
            pending = UnplacedPods(len(pods), key, message, pending_before=was_pending)
            scheduler = self._copy.plane.scheduler
            if scheduler is not None and len(self._explained) < _MAX_EXPLAINED:
                explanation = explain(scheduler, key)
                pending.message = explanation.message or explanation.summary or message
                pending.helps, pending.details = list(explanation.advice), list(explanation.details)
            self._explained[key] = pending
        return self._explained[key]

    # --- events ------------------------------------------------------------------------------------------------------

    def _creation_failures(self) -> dict[WorkloadKey, list[str]]:
        """Return why pods could not be created, by workload."""
        failures: dict[WorkloadKey, list[str]] = {}
        for event in self._copy.objects(EVENTS).values():
            if event.get("reason") != "FailedCreate":
                continue
            involved = event["involvedObject"]
            key = self._owner_key(involved.get("kind", ""), involved.get("namespace", ""), involved.get("name", ""))
            message = _without_pod_name(event.get("message") or event.get("note") or "")
            if message not in failures.setdefault(key, []):
                failures[key].append(message)
        complete = {key for key in failures if self._is_complete(key)}
        return {key: messages for key, messages in failures.items() if key not in complete}

    def _is_complete(self, key: WorkloadKey) -> bool:
        resource = _ROLLOUTS.get(key[0])
        if resource is None or (workload := self._typed(resource, f"{key[1]}/{key[2]}")) is None:
            return True
        return resource in WORKLOAD_PROGRESS and WORKLOAD_PROGRESS[resource](workload).complete

    def _owner_key(self, kind: str, namespace: str, name: str) -> WorkloadKey:
        """Return the workload of an object: of a ReplicaSet its Deployment."""
        if kind == REPLICA_SETS.kind:
            replica_set = self._copy.objects(REPLICA_SETS).get(f"{namespace}/{name}")
            for reference in (replica_set or {"metadata": {}})["metadata"].get("ownerReferences") or ():
                if reference.get("controller"):
                    return reference["kind"], namespace, reference["name"]
        return kind, namespace, name

    def _preemption_messages(self) -> dict[str, str]:
        """Return who preempts a pod, by its key."""
        messages = {}
        for event in self._copy.objects(EVENTS).values():
            if event.get("reason") != "Preempted":
                continue
            involved, related = event["involvedObject"], event.get("related") or {}
            if related.get("name"):
                messages[f"{involved.get('namespace')}/{involved.get('name')}"] = (
                    f"preempted by {related.get('namespace')}/{related['name']}"
                )
        return messages


def is_pending(pod: JSON) -> bool:
    """Return True for a pod that waits for a node."""
    if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
        return False
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _blocked_update(workload: Any, result: WorkloadResult) -> list[str]:
    """Return why a rolling update cannot make room for its new pods, [] if it can."""
    if not isinstance(workload, Deployment) or not result.pending:
        return []
    has_old_pods = workload.status.replicas > workload.status.updated_replicas
    if not is_rolling_update(workload) or not has_old_pods or max_unavailable(workload):
        return []
    rolling_update = workload.spec.strategy.rolling_update or RollingUpdateDeployment()
    setting = str(rolling_update.max_unavailable)
    of_pods = "" if setting.rstrip("%") == "0" else f" {setting} of {result.desired} pods"
    return [f"maxUnavailable{of_pods} is 0, so that no old pod makes room for a new one"]


def _message(pod: JSON) -> str:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return "no scheduler has tried to schedule it"


def _without_pod_name(message: str) -> str:
    """Return the message of a FailedCreate event without the name of the pod, which differs each time."""
    _, separator, reason = message.partition(" is forbidden: ")
    return f"pods cannot be created: {reason}" if separator else message


def _order(pod: DisplacedPod) -> str:
    return pod.pod
