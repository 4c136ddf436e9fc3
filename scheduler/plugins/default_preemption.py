"""DefaultPreemption: evicts pods of lower priority if a pod fits on no node.

A dry run on each node where that may help removes all pods of lower priority from a copy of the node, then reprieves
them one by one, the most important first, as long as the preemptor still fits. The best node is nominated; its victims
are evicted in the background, or before the cycle ends if the feature gate SchedulerAsyncPreemption is off.
Source: plugins/defaultpreemption and framework/preemption of v1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.dry_run import DryRuns
from kubeloop.scheduler.api.events import POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extender import ExtenderError
from kubeloop.scheduler.api.extension_points import (
    GroupScheduling,
    NodeToStatusReader,
    PostFilterResult,
    PostFilterReturn,
)
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import failed, on_event, unresolvable, unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.pod_groups import pod_group_key
from kubeloop.scheduler.config.plugin_args import DefaultPreemptionArgs
from kubeloop.scheduler.framework.fit_error import fit_error_message
from kubeloop.scheduler.framework.plugin_calls import aggregated
from kubeloop.scheduler.plugins.disruption_budgets import Budget, split_by_violation
from kubeloop.scheduler.plugins.pod_group_preemption import select_victims
from kubeloop.scheduler.plugins.preemption_executor import PreemptionExecutor, Preemptor
from kubeloop.scheduler.plugins.preemption_victims import Candidate, best_candidate, importance_at

if TYPE_CHECKING:
    from kubeloop.scheduler.api.extender import Extender
    from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
    from kubeloop.scheduler.cache.snapshot import Snapshot

_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_MAX_CACHED_PREEMPTORS = 4  # classes and priorities of preemptors whose dry runs are cached
_CLUSTER = "cluster"  # the node in the messages of a preemption for a group
_NO_VICTIMS = "No preemption victims found for incoming pod"


_CachedDryRun = tuple["NodeInfo", int, Candidate | Status]
"""(node, stamp of the nominations to it, result of the dry run)"""


class _DryRunFailed(Exception):
    """A PreFilter extension failed in a dry run; `status` has the error."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class DryRunResult(msgspec.Struct):
    """candidates: nodes where preemption helps; rejections: by node, why it does not."""

    candidates: list[Candidate] = msgspec.field(default_factory=list)
    rejections: dict[str, Status] = msgspec.field(default_factory=dict)


class DefaultPreemption:
    name = "DefaultPreemption"

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        self._handle = handle
        self._percentage = args.min_candidate_nodes_percentage
        self._absolute = args.min_candidate_nodes_absolute
        self._evicts_in_background = handle.feature_gates.enabled("SchedulerAsyncPreemption")
        self._preempts_for_groups = handle.feature_gates.enabled("WorkloadAwarePreemption")
        self._schedules_in_placements = handle.feature_gates.enabled("TopologyAwareWorkloadScheduling")
        self._executor = PreemptionExecutor(handle, self.name)
        self._no_victims = unresolvable("", _NO_VICTIMS)
        self._preempting = unresolvable(self.name, "waiting for the preemption for this pod to be finished")
        self._group_preempting = unresolvable(self.name, "waiting for the preemption for this pod group to be finished")
        # By class and priority of the preemptor, least recently used first.
        self._dry_run_cache: dict[tuple[int, int], tuple[object, dict[str, _CachedDryRun]]] = {}

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
        potential_nodes = list(filter(snapshot.row_of.__contains__, statuses.nodes_with_code(Code.UNSCHEDULABLE)))
        dry_run = self.dry_run(state, pod, snapshot, potential_nodes)
        if not dry_run.candidates:
            errors = [status for status in dry_run.rejections.values() if status.code is Code.ERROR]
            if errors:
                return None, failed(self.name, f"preemption: {aggregated(errors)}")
            return PostFilterResult(), self._not_possible(_fit_error(len(snapshot), dry_run.rejections.values()))
        extenders = [
            extender for extender in self._handle.extenders if extender.preempts and extender.is_interested(pod.pod)
        ]
        if extenders:
            return self._preempt_with_extenders(pod, snapshot, dry_run.candidates, extenders)
        return self._preempt(pod, dry_run.candidates)

    def _preempt(self, pod: PodInfo, candidates: Sequence[Candidate]) -> PostFilterReturn | Awaitable[PostFilterReturn]:
        best = best_candidate(candidates, self._handle.clock.now())
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
        outcome = self._preempt(pod, candidates)
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

    # --- dry run ---------------------------------------------------------------------------------------------------

    def dry_run(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, nodes: Sequence[str]) -> DryRunResult:
        """Select victims on `nodes`, starting from a random one, until there are enough candidates."""
        result = DryRunResult()
        if not nodes:
            return result
        min_candidates = max(len(nodes) * self._percentage // 100, self._absolute)
        offset = self._handle.rng.randrange(len(nodes))
        budgets = [Budget(budget) for budget in self._handle.listers.pod_disruption_budgets.list()]
        without_violations = 0
        dry_runs = self._handle.dry_runs(state, pod)
        nominator = self._handle.nominator
        own_node = nominator.node_of(pod.uid)  # other pods of the class have a different result there
        cached = self._cached_dry_runs(pod, snapshot) if dry_runs.only_sums else {}
        for index in range(len(nodes)):
            info = snapshot.get(nodes[(offset + index) % len(nodes)])
            assert info is not None
            nominations_stamp = nominator.stamp(info.name)
            entry = cached.get(info.name)
            if entry is not None and entry[0] is info and entry[1] == nominations_stamp and info.name != own_node:
                outcome = entry[2]
            else:
                outcome = self._select_victims_on_node(dry_runs, pod, info, snapshot, budgets)
                if info.name != own_node:
                    cached[info.name] = (info, nominations_stamp, outcome)
            if isinstance(outcome, Status):
                result.rejections[info.name] = outcome
                continue
            result.candidates.append(outcome)
            without_violations += outcome.pdb_violations == 0
            if without_violations and len(result.candidates) >= min_candidates:
                break
        return result

    def _cached_dry_runs(self, pod: PodInfo, snapshot: Snapshot) -> dict[str, _CachedDryRun]:
        """Return results of dry runs for this class and priority of pods, by node.

        They hold while the node, its nominations and all PodDisruptionBudgets are unchanged, and only for pods whose
        filters read nothing of other nodes.
        """
        stamp = self._handle.listers.pod_disruption_budgets.version
        key = (snapshot.classes.number(pod.pod), pod.priority)
        cached = self._dry_run_cache.pop(key, None)
        if cached is None or cached[0] != stamp:
            cached = (stamp, {})
        self._dry_run_cache[key] = cached
        while len(self._dry_run_cache) > _MAX_CACHED_PREEMPTORS:
            del self._dry_run_cache[next(iter(self._dry_run_cache))]
        return cached[1]

    def _select_victims_on_node(
        self, dry_runs: DryRuns, pod: PodInfo, info: NodeInfo, snapshot: Snapshot, budgets: Sequence[Budget]
    ) -> Candidate | Status:
        priority = pod.priority
        lower_priority = [other for other in info.pods.values() if other.priority < priority]
        if not lower_priority:
            return self._no_victims
        capacity = dry_runs.free_capacity(info, snapshot)
        if capacity is not None:
            for other in lower_priority:
                capacity.remove_pod(other)
            if capacity.is_sufficient:
                return self._reprieve_victims(info, lower_priority, budgets, capacity.add_pod_if_fits)
        node = dry_runs(info)
        for other in lower_priority:
            status = node.remove_pod(other)
            if status is not None:
                return status
        status = node.run_filters()
        if status is not None:
            return status

        def reprieve(other: PodInfo) -> bool:
            if node.add_pod(other) is None and node.run_filters() is None:
                return True
            status = node.remove_pod(other)
            if status is not None:
                raise _DryRunFailed(status)
            return False

        try:
            return self._reprieve_victims(info, lower_priority, budgets, reprieve)
        except _DryRunFailed as failure:
            return failure.status

    def _reprieve_victims(
        self,
        info: NodeInfo,
        lower_priority: list[PodInfo],
        budgets: Sequence[Budget],
        reprieve: Callable[[PodInfo], bool],
    ) -> Candidate | Status:
        """Reprieve the pods that can stay on the node, most important first, and return the others as victims.

        Pods whose eviction would violate a PodDisruptionBudget are tried first. Sorts `lower_priority` in place.
        """
        importance = importance_at(self._handle.clock.now())
        lower_priority.sort(key=importance)
        violating, non_violating = split_by_violation(lower_priority, budgets) if budgets else ([], lower_priority)
        victims: list[PodInfo] = []
        violations = 0
        for position, other in enumerate((*violating, *non_violating)):
            if not reprieve(other):
                victims.append(other)
                violations += position < len(violating)
        if not victims:
            return failed(self.name, f'expected at least one victim pod on node "{info.name}"')
        if violating:
            victims.sort(key=importance)  # otherwise they are sorted already
        return Candidate(info.name, tuple(victims), violations)

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


def _fit_error(num_all_nodes: int, rejections: Iterable[Status]) -> str:
    counts: Counter[str] = Counter()
    rejected = 0
    for status in rejections:
        rejected += 1
        counts.update(status.reasons)
    if num_all_nodes > rejected:
        counts[_NOT_HELPFUL] += num_all_nodes - rejected
    return fit_error_message(num_all_nodes, counts)
