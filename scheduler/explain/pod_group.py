"""Explain why a pod group is not scheduled, for `kubeloop explain podgroup/NAME`.

Missing pods, gated pods, the placements of its last attempt, and pods that wait on permit. Nothing is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import is_finished
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo, may_be_devices
from kubeloop.scheduler.cache.pod_groups import pod_group_key
from kubeloop.scheduler.explain.pending_pod import gating_message
from kubeloop.scheduler.plugins.pod_groups.gang_scheduling import GangScheduling
from kubeloop.scheduler.pod_groups.group_conditions import CONDITION_TYPE
from kubeloop.scheduler.scheduler import Scheduler
from kubeloop.tracing.spans.pod_group_record import PodGroupAttemptFacts


@dataclass(frozen=True, slots=True)
class GatedPod:
    """A pod that is not queued. reason: of the plugin that gates it."""

    pod: str
    plugin: str
    reason: str


@dataclass(frozen=True, slots=True)
class PermitWait:
    """A pod that has a node and waits on permit."""

    pod: str
    node: str
    waited_seconds: float
    timeout_seconds: float


@dataclass(slots=True)
class PodGroupExplanation:
    """pods, bound: numbers of its pods that have not ended. min_count: 0 for a group that is not a gang.

    exists: there is a PodGroup, or a pod that names it. last_attempt: None if there was none. shortages: resource -> by
    how much the requests of all pending pods exceed what is free in the domain that has the most, millicores for CPU.
    unfit_pod: key of the pod to explain; "" for none. retry_seconds: until the next attempt; 0.0 without backoff.
    """

    pod_group: str
    summary: str = ""
    exists: bool = True
    min_count: int = 0
    topology_key: str = ""
    pods: int = 0
    bound: int = 0
    gated: list[GatedPod] = field(default_factory=list)
    permit: list[PermitWait] = field(default_factory=list)
    last_attempt: PodGroupAttemptFacts | None = None
    shortages: dict[str, int] = field(default_factory=dict)
    unfit_pod: str = ""
    retry_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        facts = self.last_attempt
        return {
            "podGroup": self.pod_group,
            "summary": self.summary,
            "minCount": self.min_count,
            "topologyKey": self.topology_key,
            "pods": self.pods,
            "bound": self.bound,
            "gated": [{"pod": gated.pod, "plugin": gated.plugin, "reason": gated.reason} for gated in self.gated],
            "permit": [
                {
                    "pod": wait.pod,
                    "node": wait.node,
                    "waitedSeconds": wait.waited_seconds,
                    "timeoutSeconds": wait.timeout_seconds,
                }
                for wait in self.permit
            ],
            "lastAttempt": None
            if facts is None
            else {
                "result": facts.result,
                "pods": facts.pods,
                "message": facts.message,
                "placements": [
                    {
                        "name": placement.name,
                        "feasiblePods": placement.feasible_pods,
                        "message": placement.message,
                    }
                    for placement in facts.placements
                ],
                "placementCount": facts.placement_count,
                "victims": facts.victims,
                "preemption": facts.preemption,
            },
            "shortages": self.shortages,
            "retrySeconds": self.retry_seconds,
        }


def explain_pod_group(scheduler: Scheduler, key: str, last_attempt: PodGroupAttemptFacts | None) -> PodGroupExplanation:
    """Return the explanation for the group "namespace/name"."""
    namespace = key.partition("/")[0]
    pods = [
        pod
        for pod in scheduler.listers.pods.by_index("namespace", namespace)
        if pod_group_key(pod) == key and not is_finished(pod)
    ]
    explanation = PodGroupExplanation(key, pods=len(pods), bound=sum(bool(pod.spec.node_name) for pod in pods))
    explanation.last_attempt = last_attempt
    pod_group = scheduler.listers.pod_groups.get(key)
    pending = sorted((pod for pod in pods if not pod.spec.node_name), key=lambda pod: pod.key)
    if pod_group is None:
        explanation.exists = bool(pods)
        explanation.summary = _without_pod_group(explanation)
        return explanation
    gang, constraints = pod_group.spec.scheduling_policy.gang, pod_group.spec.scheduling_constraints
    explanation.min_count = gang.min_count if gang is not None else 0
    explanation.topology_key = constraints.topology[0].key if constraints is not None and constraints.topology else ""
    queued = _add_states(scheduler, pending, explanation)
    is_scheduled = any(
        condition.type == CONDITION_TYPE and condition.status == "True" for condition in pod_group.status.conditions
    )
    explanation.summary = _summary(explanation, len(queued), is_scheduled=is_scheduled)
    if last_attempt is not None and last_attempt.result != "scheduled" and len(pods) >= explanation.min_count:
        unfit = f"{namespace}/{last_attempt.unfit_pod}"
        explanation.unfit_pod = unfit if any(pod.key == unfit for pod in pending) else ""
        explanation.shortages = _shortages(scheduler, queued, explanation.topology_key)
    return explanation


def _without_pod_group(explanation: PodGroupExplanation) -> str:
    verb = _verb(explanation.pods, "waits", "wait")
    return f"there is no such PodGroup; {_count(explanation.pods)} {verb} for it"


def _add_states(scheduler: Scheduler, pending: Sequence[Pod], explanation: PodGroupExplanation) -> list[Pod]:
    """Add the pods that are gated or wait on permit; return the others, which compete for nodes."""
    competing = []
    for pod in pending:
        waiting = scheduler.waiting_pods.get(pod.metadata.uid)
        entry = scheduler.queue.get(pod.key)
        if waiting is not None:
            node = waiting.pod.pod.spec.node_name
            explanation.permit.append(
                PermitWait(pod.metadata.name, node, waiting.waited_seconds, waiting.timeout_seconds)
            )
        elif entry is not None and entry[1].gated:
            plugin = entry[1].gating_plugin
            if plugin == GangScheduling.name:  # the summary has the reason
                continue
            explanation.gated.append(GatedPod(pod.metadata.name, plugin, gating_message(scheduler, pod, entry[1])))
        else:
            competing.append(pod)
            if entry is not None:
                remaining_seconds = scheduler.queue.remaining_backoff_seconds(entry[1])
                explanation.retry_seconds = max(explanation.retry_seconds, remaining_seconds)
    return competing


def _summary(explanation: PodGroupExplanation, competing: int, *, is_scheduled: bool) -> str:
    """Return one sentence. competing: number of pods that are to be scheduled. is_scheduled: the group was, once."""
    pods, min_count, facts = explanation.pods, explanation.min_count, explanation.last_attempt
    if not pods and is_scheduled:
        return "it was scheduled, and its pods have ended"
    if not pods:
        return f"it has no pods{f'; minCount is {min_count}' if min_count else ''}"
    if pods < min_count:
        return f"it waits for pods: {pods} of minCount {min_count} exist"
    if explanation.bound == pods:
        return f"all of its pods ({pods}) are bound"
    missing = min_count - explanation.bound - len(explanation.permit)
    if competing < missing:
        return f"{_count(len(explanation.gated))} of {pods} {_verb(len(explanation.gated), 'is', 'are')} gated"
    if explanation.permit and missing > 0:
        waiting = len(explanation.permit)
        return f"{_count(waiting)} with a node {_verb(waiting, 'waits', 'wait')} on permit for the others"
    if facts is None:
        return "its next attempt is due"
    if facts.result == "scheduled":
        return "it fits now; its next attempt is due"
    if facts.result == "preempting":
        return "it waits until preempted pods have ended"
    return f"it cannot be scheduled: {facts.message}" if facts.message else "it cannot be scheduled"


def _count(pods: int) -> str:
    return f"{pods} pod{'' if pods == 1 else 's'}"


def _verb(count: int, singular: str, plural: str) -> str:
    return singular if count == 1 else plural


def _shortages(scheduler: Scheduler, pods: Iterable[Pod], topology_key: str) -> dict[str, int]:
    """Return by how much the requests of all `pods` exceed what is free in the domain with the most of the resource."""
    needed: Counter[str] = Counter()
    for pod in pods:
        needed.update(PodInfo(pod, scheduler.request_rules).requests)
    free: dict[str, Counter[str]] = {}  # by domain
    for node in scheduler.snapshot.node_infos:
        if node.node is None or node.node.spec.unschedulable:
            continue
        domain = node.node.metadata.labels.get(topology_key, "") if topology_key else "all nodes"
        if domain:
            rooms = free.setdefault(domain, Counter())
            for name in needed:
                rooms[name] += _free(scheduler, node, name)
    most = {name: max((rooms[name] for rooms in free.values()), default=0) for name in needed}
    return {name: amount - most[name] for name, amount in needed.items() if amount > most[name]}


def _free(scheduler: Scheduler, node: NodeInfo, name: str) -> int:
    """Return how much of a resource is free on a node, which may provide it by devices."""
    allocatable = node.allocatable.get(name, 0)
    if allocatable or not may_be_devices(name) or not scheduler.feature_gates.enabled("DRAExtendedResource"):
        return max(0, allocatable - node.requested.get(name, 0))
    assert node.node is not None
    devices, in_use = scheduler.cluster_devices().count_devices(name, node.name, node.node.metadata.labels)
    return devices - in_use
