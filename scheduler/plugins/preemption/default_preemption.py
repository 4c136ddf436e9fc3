"""DefaultPreemption: evicts pods of lower priority if a pod fits on no node.

A dry run on each node where that may help removes all pods of lower priority from a copy of the node, then reprieves
them one by one, the most important first, as long as the preemptor still fits. The best node is nominated; its victims
are evicted in the background, or before the cycle ends if the feature gate SchedulerAsyncPreemption is off.
Source: plugins/defaultpreemption and framework/preemption of v1.36.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extender import Extender, ExtenderError
from kubeloop.scheduler.api.extension_points import (
    GroupScheduling,
    NodeToStatusReader,
    PostFilterResult,
    PostFilterReturn,
)
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import failed, on_event, unresolvable, unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_groups import pod_group_key
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import DefaultPreemptionArgs
from kubeloop.scheduler.framework.fit_error import fit_error_message
from kubeloop.scheduler.framework.plugin_calls import aggregated
from kubeloop.scheduler.plugins.preemption.candidates import Candidate, best_candidate, importance_at
from kubeloop.scheduler.plugins.preemption.disruption_budgets import Budget
from kubeloop.scheduler.plugins.preemption.executor import PreemptionExecutor, Preemptor
from kubeloop.scheduler.plugins.preemption.pod_group_preemption import select_victims
from kubeloop.scheduler.plugins.preemption.victim_selection import VictimSelection

_CLUSTER = "cluster"  # the node in the messages of a preemption for a group


class DefaultPreemption:
    name = "DefaultPreemption"

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        self._handle = handle
        self._evicts_in_background = handle.feature_gates.enabled("SchedulerAsyncPreemption")
        self._preempts_for_groups = handle.feature_gates.enabled("WorkloadAwarePreemption")
        self._schedules_in_placements = handle.feature_gates.enabled("TopologyAwareWorkloadScheduling")
        self.victim_selection = VictimSelection(handle, args, self.name)
        self._executor = PreemptionExecutor(handle, self.name)
        self._preempting = unresolvable(self.name, "waiting for the preemption for this pod to be finished")
        self._group_preempting = unresolvable(self.name, "waiting for the preemption for this pod group to be finished")

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Keep the pod out of the queue while its victims are being evicted; its node would still be full."""
        if self._preempts_for_groups and pod.spec.scheduling_group is not None:
            group = self._group_of(pod)
            preempting = group is not None and self._executor.rejects(group.metadata.uid)
            return self._group_preempting if preempting else None
        if self._executor.rejects(pod.metadata.uid):
            return self._preempting
        return None

    def _group_of(self, pod: Pod) -> PodGroup | None:
        return self._handle.listers.pod_groups.get(pod_group_key(pod))

    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, statuses: NodeToStatusReader
    ) -> PostFilterReturn | Awaitable[PostFilterReturn]:
        """Preempt on the best candidate. Returns an awaitable if there are extenders or evictions to wait for."""
        self._handle.metrics.preemption_attempt()
        reason = self._group_reason(pod.pod) if pod.pod.spec.scheduling_group is not None else ""
        reason = reason or self.ineligible_reason(pod, snapshot, statuses)
        if reason:
            return None, self._not_possible(reason)
        dry_run = self.victim_selection.dry_run(state, pod, snapshot, statuses.rows_with_code(Code.UNSCHEDULABLE))
        if not dry_run.has_candidates:
            rejections, number = dry_run.rejections, len(snapshot)
            errors = [status for name in rejections.nodes_with_code(Code.ERROR) if (status := rejections.get(name))]
            if errors:
                return None, failed(self.name, f"preemption: {aggregated(errors)}")
            message = fit_error_message(number, rejections.count_reasons(number))
            return PostFilterResult(), self._not_possible(message)
        extenders = [
            extender for extender in self._handle.extenders if extender.preempts and extender.is_interested(pod.pod)
        ]
        if extenders:
            return self._preempt_with_extenders(pod, snapshot, dry_run.candidates, extenders)
        return self._preempt(pod, dry_run.best(self._handle.clock.now()))

    def _preempt(self, pod: PodInfo, best: Candidate) -> PostFilterReturn | Awaitable[PostFilterReturn]:
        if not self._evicts_in_background:
            return self._evict_and_wait(pod, best)
        self._executor.start(Preemptor.of_pod(pod), best.node, best.victims)
        return PostFilterResult(best.node, len(best.victims)), None

    async def _evict_and_wait(self, pod: PodInfo, candidate: Candidate) -> PostFilterReturn:
        error = await self._executor.run(Preemptor.of_pod(pod), candidate.node, candidate.victims)
        if error is not None:
            return None, failed(self.name, f"preemption: {error}")
        return PostFilterResult(candidate.node, len(candidate.victims)), None

    async def _preempt_with_extenders(
        self, pod: PodInfo, snapshot: Snapshot, candidates: Sequence[Candidate], extenders: Iterable[Extender]
    ) -> PostFilterReturn:
        """Let each extender in turn reduce the candidates and their victims, then preempt on the best."""
        for extender in extenders:
            victims = {candidate.node: (candidate.victims, candidate.pdb_violations) for candidate in candidates}
            try:
                remaining = await extender.process_preemption(pod.pod, victims)
                candidates = [
                    self._extender_candidate(extender, snapshot, node, *entry)
                    for node, entry in remaining.items()
                    if entry[0] or not extender.ignorable
                ]
            except ExtenderError as error:
                if extender.ignorable:
                    continue
                return None, failed(self.name, f"preemption: {error}")
            if not candidates:
                return None, self._not_possible("no candidate node for preemption")
        outcome = self._preempt(pod, best_candidate(candidates, self._handle.clock.now()))
        return await outcome if isinstance(outcome, Awaitable) else outcome

    def _extender_candidate(
        self, extender: Extender, snapshot: Snapshot, node: str, uids: Sequence[str], violations: int
    ) -> Candidate:
        """Return the candidate of an extender's response. Raises ExtenderError for an unknown node or victim."""
        info = snapshot.get(node)
        if info is None:
            raise ExtenderError(f'nodeinfo not found for node name "{node}"')
        if not uids:
            raise ExtenderError(f'expected at least one victim pod on node "{node}"')
        for uid in uids:
            if uid not in info.pods:
                raise ExtenderError(
                    f"extender: {extender.name} claims to preempt pod (UID: {uid}) on node: {node}, "
                    "but the pod is not found on that node"
                )
        importance = importance_at(self._handle.clock.now())
        return Candidate(node, tuple(sorted((info.pods[uid] for uid in uids), key=importance)), violations)

    async def pod_group_post_filter(
        self, group: PodGroup, pods: Sequence[Pod], schedule: GroupScheduling
    ) -> tuple[int, Status | None]:
        """Preempt for a group that cannot be scheduled. pods: its unscheduled pods.

        Returns (number of victims, why there are none). `schedule` tries to schedule the group on the snapshot of the
        handle, which is restored before any eviction.
        """
        handle, preemptor = self._handle, Preemptor.of_group(group, pods)
        budgets = [Budget(budget) for budget in handle.listers.pod_disruption_budgets.list()]
        victims = await select_victims(
            preemptor, handle.snapshot, handle.listers.pod_groups, budgets, schedule, handle.clock.now(), self.name
        )
        if isinstance(victims, Status):
            return 0, victims
        if self._evicts_in_background:
            self._executor.start(preemptor, _CLUSTER, victims)
            return len(victims), None
        error = await self._executor.run(preemptor, _CLUSTER, victims)
        return len(victims), None if error is None else failed(self.name, error)

    def _group_reason(self, pod: Pod) -> str:
        """Return why a pod of a group may not preempt on its own; "" if it may."""
        if self._schedules_in_placements:
            group = self._group_of(pod)
            if group is None:
                return "pod group for pod not found"
            if group.spec.scheduling_constraints is not None:
                return "not eligible due to placement-based pod group scheduling limitation"
        return "not eligible due to workload aware preemption enabled" if self._preempts_for_groups else ""

    def forget(self, uid: str) -> None:
        """Stop tracking the pod `uid`, which was deleted or no longer waits for its victims."""
        self._executor.forget(uid)

    def _not_possible(self, message: str) -> Status:
        return unschedulable(self.name, f"preemption: {message}")

    def ineligible_reason(self, pod: PodInfo, snapshot: Snapshot, statuses: NodeToStatusReader) -> str:
        """Return why this pod may not preempt now; "" if it may."""
        if pod.pod.spec.preemption_policy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        nominated = pod.pod.status.nominated_node_name
        if nominated:
            status = statuses.get(nominated)
            if status is not None and status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return ""  # the nominated node can no longer become feasible by preemption
            info = snapshot.get(nominated)
            if info is not None and any(
                other.priority < pod.priority and _is_being_preempted(other.pod) for other in info.pods.values()
            ):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Register for deleted pods, but never queue for them: the plugins that rejected the pod do."""
        # without evictions in the background pre_enqueue rejects no pod
        return (on_event(POD, ActionType.DELETE, _never),) if self._evicts_in_background else ()


def _never(pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
    return Hint.SKIP


def _is_being_preempted(pod: Pod) -> bool:
    if pod.metadata.deletion_timestamp is None:
        return False
    for condition in pod.status.conditions:
        if condition.type == "DisruptionTarget":
            return condition.status == "True" and condition.reason == "PreemptionByScheduler"
    return False
