"""Preemption for a pod group: evicts pods and pod groups of lower priority anywhere in the cluster.

All possible victims are removed from the snapshot, then reprieved one by one, the most important first, as long as the
whole group can still be scheduled. The snapshot is restored afterwards.
Source: framework/preemption/{podgrouppreemption,types}.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from operator import attrgetter

import msgspec

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.extension_points import GroupScheduling
from kubeloop.scheduler.api.listers import Lister
from kubeloop.scheduler.api.results import unresolvable, unschedulable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.pod_groups import pod_group_key
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.plugins.preemption.disruption_budgets import Budget
from kubeloop.scheduler.plugins.preemption.executor import Preemptor


class Victim(msgspec.Struct):
    """A pod, or the pods of a group that are disrupted together.

    start: of the pod, or of the first pod of the group that was seen (as in kube-scheduler, not of the oldest).
    """

    uid: str  # of the pod or the group
    pods: list[PodInfo]
    priority: int
    start: datetime

    @property
    def importance(self) -> tuple[int, bool, int, datetime, str]:
        """Return a sort key, most important first: highest priority, pods of groups, more pods, earliest start.

        The order of victims that are equal in all this is open in kube-scheduler; here it is that of their UIDs.
        """
        return -self.priority, self.pods[0].pod.spec.scheduling_group is None, -len(self.pods), self.start, self.uid


def possible_victims(
    nodes: Iterable[NodeInfo], groups: Lister[PodGroup], *, below_priority: int, now: datetime
) -> list[Victim]:
    """Return the victims with a lower priority than `below_priority`. now: the start of pods that have none.

    The pods of a node are read in the order of their UIDs: kube-scheduler's order is that of their arrival.
    """
    victims: dict[str, Victim] = {}
    for node in nodes:
        for pod in sorted(node.pods.values(), key=attrgetter("uid")):
            group = _group_disrupted_together(pod.pod, groups)
            uid, priority = (pod.uid, pod.priority) if group is None else (group.metadata.uid, group.spec.priority or 0)
            if priority >= below_priority:
                continue
            victim = victims.get(uid)
            if victim is None:
                victims[uid] = Victim(uid, [pod], priority, pod.pod.status.start_time or now)
            else:
                victim.pods.append(pod)
    return list(victims.values())


def _group_disrupted_together(pod: Pod, groups: Lister[PodGroup]) -> PodGroup | None:
    """Return the pod's group if its disruption mode is PodGroup."""
    group = groups.get(pod_group_key(pod)) if pod.spec.scheduling_group is not None else None
    return group if group is not None and group.spec.disruption_mode == "PodGroup" else None


def split_by_violation(victims: Iterable[Victim], budgets: Sequence[Budget]) -> tuple[list[Victim], list[Victim]]:
    """Return (victims whose eviction would violate a budget, the others), each in the order of `victims`.

    The first violation of a victim ends its count: as in kube-scheduler, its other pods and budgets do not count.
    """
    remaining = [budget.disruptions_allowed for budget in budgets]

    def violates(pod: Pod) -> bool:
        for index, budget in enumerate(budgets):
            if budget.covers(pod):
                remaining[index] -= 1
                if remaining[index] < 0:
                    return True
        return False

    violating: list[Victim] = []
    non_violating: list[Victim] = []
    for victim in victims:
        (violating if any(violates(pod.pod) for pod in victim.pods) else non_violating).append(victim)
    return violating, non_violating


async def select_victims(
    preemptor: Preemptor,
    snapshot: Snapshot,
    groups: Lister[PodGroup],
    budgets: Sequence[Budget],
    schedule: GroupScheduling,
    now: datetime,
    plugin: str,
) -> list[PodInfo] | Status:
    """Return the pods to evict so that the group can be scheduled, or why there are none.

    Cancellation: safe; the snapshot is restored.
    """
    if any(pod.spec.preemption_policy == "Never" for pod in preemptor.pods):
        return unschedulable(plugin, "not eligible due to preemptionPolicy=Never.")
    victims = possible_victims(snapshot.node_infos, groups, below_priority=preemptor.priority, now=now)
    if not victims:
        return unresolvable(plugin, "No preemption victims found for incoming preemptor")
    with _restored(snapshot, victims):
        snapshot.update(None, _without(snapshot, (pod for victim in victims for pod in victim.pods)))
        status = await schedule()
        if status is not None:
            return status
        victims.sort(key=_importance)
        violating, non_violating = split_by_violation(victims, budgets)
        to_preempt = [
            victim for victim in (*violating, *non_violating) if not await _reprieve(snapshot, victim, schedule)
        ]
    to_preempt.sort(key=_importance)
    return [pod for victim in to_preempt for pod in victim.pods]


def _importance(victim: Victim) -> tuple[int, bool, int, datetime, str]:
    return victim.importance


async def _reprieve(snapshot: Snapshot, victim: Victim, schedule: GroupScheduling) -> bool:
    """Return True, with the pods of the victim on their nodes, if the group can be scheduled then."""
    nodes = _nodes_of(snapshot, victim.pods)
    changed = {node.name: node.clone() for node in nodes}
    for pod in victim.pods:
        changed[pod.pod.spec.node_name].add_pod(pod)
    snapshot.update(None, changed.values())
    if await schedule() is None:
        return True
    snapshot.update(None, nodes)
    return False


def _without(snapshot: Snapshot, pods: Iterable[PodInfo]) -> Iterable[NodeInfo]:
    """Return copies of the nodes of `pods` that lack these pods."""
    changed: dict[str, NodeInfo] = {}
    for pod in pods:
        name = pod.pod.spec.node_name
        if name not in changed:
            changed[name] = snapshot.node_infos[snapshot.row_of[name]].clone()
        changed[name].remove_pod(pod.uid)
    return changed.values()


def _nodes_of(snapshot: Snapshot, pods: Iterable[PodInfo]) -> list[NodeInfo]:
    names = dict.fromkeys(pod.pod.spec.node_name for pod in pods)
    return [snapshot.node_infos[snapshot.row_of[name]] for name in names]


@contextmanager
def _restored(snapshot: Snapshot, victims: Iterable[Victim]) -> Iterator[None]:
    """Restore the nodes of the victims at the end."""
    nodes = _nodes_of(snapshot, (pod for victim in victims for pod in victim.pods))
    try:
        yield
    finally:
        snapshot.update(None, nodes)
