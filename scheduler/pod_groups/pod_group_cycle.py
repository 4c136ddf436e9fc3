"""The scheduling cycle of a pod group: the nodes of all members are chosen in one snapshot, then all are bound or none.

    member popped -> all members popped -> for each placement: for each member: filter, score, assume in the snapshot,
                                           reserve, permit; then undo
       -> no placement fits: every member returns to the queue
       -> a placement fits: each member that has a node: assume, reserve, permit -> binding cycle

A placement is a set of nodes, such as a rack; without the feature gate TopologyAwareWorkloadScheduling it is all nodes.
The informers may change the cache during the cycle; the snapshot and the group's copied state stay.
Source: pkg/scheduler/schedule_one_podgroup.go of v1.36.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.scheduler.api.cycle_state import PodGroupCycleState
from kubeloop.scheduler.api.extension_points import (
    Placement,
    PodGroupAssignments,
    PodGroupInfo,
    PodGroupPostFilterPlugin,
)
from kubeloop.scheduler.api.listers import Lister
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.results import failed, unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.attempts.attempt_steps import AttemptSteps, with_node
from kubeloop.scheduler.attempts.failed_attempts import FailedAttempts, Failure, skip_deleted
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.cache import CacheError, SchedulerCache
from kubeloop.scheduler.cache.pod_groups import PodGroupState, pod_group_key
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.framework.fit_error import Diagnosis, FitError, NodeToStatus, NoNodesAvailable
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.scheduler.framework.timing import MEASURED_CYCLES
from kubeloop.scheduler.metrics import GroupAttemptResult
from kubeloop.scheduler.pod_groups.attempt_facts import attempt_facts, placement_facts
from kubeloop.scheduler.pod_groups.group_conditions import GroupCondition, PodGroupConditions
from kubeloop.scheduler.pod_groups.group_result import (
    GroupResult,
    MemberResult,
    after_preemption,
    group_result,
    member_failure,
    none_of_placements,
)
from kubeloop.scheduler.queue.nominator import WITHDRAWN
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue
from kubeloop.tracing.spans.pod_group_record import PlacementFacts, PodGroupAttemptFacts

log = logging.getLogger(__name__)

MAX_FAILED = 1_000  # groups whose last failed attempt is stored
_TURN_NS = 3_000_000  # after which the event loop's other tasks run, between two members


class SchedulingGroup(msgspec.Struct, frozen=True):
    """A group in its cycle. members: those popped, in the order in which they are scheduled."""

    info: PodGroupInfo
    framework: Framework
    members: Sequence[QueuedPodInfo]


class PodGroupCycle:
    """Schedules pod groups.

    is_active: True during a cycle; the snapshot must not change then. failed: the last attempt of groups for which it
    failed, by "namespace/name", oldest first.
    """

    def __init__(
        self,
        context: SchedulerContext,
        frameworks: Mapping[str, Framework],
        queue: SchedulingQueue,
        cache: SchedulerCache,
        snapshot: Snapshot,
        steps: AttemptSteps,
        failed_attempts: FailedAttempts,
        conditions: PodGroupConditions,
        pod_groups: Lister[PodGroup],
        bind: Callable[[Attempt], None],
    ) -> None:
        """frameworks: by scheduler name. bind(attempt): starts the binding cycle of an assumed pod."""
        self._context = context
        self._traces = context.traces
        self._group_traces = context.group_traces
        self._metrics = context.metrics
        self._rng = context.rng
        self._now_ns = context.clock.time_ns
        self._topology_aware = context.feature_gates.enabled("TopologyAwareWorkloadScheduling")
        self._preempts = context.feature_gates.enabled("WorkloadAwarePreemption")
        self._frameworks = frameworks
        self._queue = queue
        self._cache = cache
        self._steps = steps
        self._snapshot = snapshot
        self._failed_attempts = failed_attempts
        self._conditions = conditions
        self._pod_groups = pod_groups
        self._bind = bind
        self._attempts = 0  # of members, in all cycles
        self._turn_end_ns = 0
        self.is_active = False
        self.failed: dict[str, PodGroupAttemptFacts] = {}

    async def run(self, first: QueuedPodInfo) -> None:
        """Schedule the group of a popped pod. Raises nothing but cancellation.

        Cancellation: members without a node are no longer queued; the next start reads them from the API server.
        """
        key = pod_group_key(first.pod)
        state = self._live_state(key)
        if state is None:
            message = f"error while retrieving pod group state: pod group state not found for pod group {key}"
            self._fail_all(key, (first,), message)
            return
        members = self._pop_members(first, state)
        names = list(dict.fromkeys(queued.pod.spec.scheduler_name for queued in members))
        if len(names) > 1:
            message = "all pods in a single pod group should have the same .spec.schedulerName set, got: "
            self._fail_all(key, members, f"{message}{quoted(names[1])} and {quoted(names[0])}")
            return
        members = [queued for queued in members if not self._skip(queued)]
        framework = self._frameworks.get(names[0])
        if framework is None or not members:
            return
        namespace, _, name = key.partition("/")
        info = PodGroupInfo(namespace, name, tuple(queued.info for queued in members))
        self.is_active = True
        try:
            await self._schedule(SchedulingGroup(info, framework, members), PodGroupCycleState(state.copy()))
        finally:
            self.is_active = False

    def _pop_members(self, first: QueuedPodInfo, state: PodGroupState) -> list[QueuedPodInfo]:
        """Return the members to be scheduled, by priority and then by age."""
        others = (pod for pod in state.unscheduled_pods() if pod.metadata.uid != first.uid)
        popped = (self._queue.pop_specific(pod) for pod in others)
        members = [first, *(queued for queued in popped if queued is not None)]
        members.sort(key=lambda queued: (-queued.info.priority, queued.initial_attempt_ns))
        return members

    def _skip(self, queued: QueuedPodInfo) -> bool:
        """Return True for a pod that is not to be scheduled, and remove it from the pods in flight."""
        if queued.pod.spec.scheduler_name in self._frameworks and not (
            skip_deleted(self._context, queued.pod) or self._cache.is_assumed(queued.pod)
        ):
            return False
        self._queue.done(queued.uid)
        return True

    def _fail_all(self, key: str, members: Sequence[QueuedPodInfo], message: str) -> None:
        """Return members to the queue with an error, without a cycle of their group."""
        if self._group_traces is not None:
            self._group_traces.attempt_started(key)
        self._attempt_finished(key, PodGroupAttemptFacts("error", len(members), message=message))
        for queued in members:
            framework = self._frameworks.get(queued.pod.spec.scheduler_name)
            if framework is None:
                self._queue.done(queued.uid)
                continue
            self._traces.attempt_started(queued.pod, queued.attempts)
            self._failed_attempts.requeue(Attempt(framework, queued, self._now_ns()), message)

    async def _schedule(self, group: SchedulingGroup, state: PodGroupCycleState) -> None:
        start_ns = self._now_ns()
        self._turn_end_ns = start_ns + _TURN_NS
        placements: list[PlacementFacts] = []
        if self._group_traces is not None:
            self._group_traces.attempt_started(group.info.key)
        for queued in group.members:
            self._traces.attempt_started(queued.pod, queued.attempts)
            # As in v1.36, where nominations of popped pods have no requests: members do not keep room from each other.
            self._queue.nominator.remove(queued.uid)
        try:
            self._cache.update_snapshot(self._snapshot)
            result = await self.find_nodes(group, state, evaluated=placements)
            self._metrics.pod_group_algorithm((self._now_ns() - start_ns) / 1e9)
            if self._preempts and result.status is not None and result.status.code is Code.UNSCHEDULABLE:
                result = after_preemption(result, *await self._preempt(group, state))
        except CacheError as error:
            result = GroupResult(status=Status(Code.ERROR, (str(error),)))
        except Exception as error:  # a mistake of ours: it costs this attempt, not the scheduler
            log.exception("scheduling a pod group failed", extra={"pod_group": group.info.key})
            result = GroupResult(status=Status(Code.ERROR, (f"{type(error).__name__}: {error}",)))
        self._attempt_finished(group.info.key, attempt_facts(result, len(group.members), placements))
        await self._submit(group, result)
        self._report(group, result, start_ns)

    async def _preempt(self, group: SchedulingGroup, state: PodGroupCycleState) -> tuple[int, Status | None]:
        """Preempt for the whole group. Returns (number of victims, why that does not help)."""
        plugin = group.framework.plugins.get("DefaultPreemption")
        if not isinstance(plugin, PodGroupPostFilterPlugin):
            message = "default preemption plugin is not registered, workload aware preemption is disabled"
            return 0, unschedulable("", message)
        pod_group = self._pod_groups.get(group.info.key)
        if pod_group is None:
            message = f'failed to get pod group object: podgroup.scheduling.k8s.io "{group.info.name}" not found'
            return 0, failed("", message)
        constraints = pod_group.spec.scheduling_constraints
        if constraints is not None and constraints.topology:
            message = "workload aware preemption is not supported for pod groups with scheduling constraints"
            return 0, unschedulable("", message)

        async def schedule() -> Status | None:
            return (await self.find_nodes(group, state, post_filters=False)).status

        return await plugin.pod_group_post_filter(pod_group, [queued.pod for queued in group.members], schedule)

    async def dry_run(self, key: str) -> PodGroupAttemptFacts | None:
        """Return the result of an attempt to schedule the group "namespace/name", without preemption.

        None if no pod of it is queued. Not while the scheduler runs: the snapshot is brought up to date and used, and
        is as before at the end.
        """
        state = self._cache.pod_groups.get(key) if self._cache.pod_groups is not None else None
        entries = [self._queue.get(pod.key) for pod in state.unscheduled_pods()] if state is not None else []
        members = [entry[1] for entry in entries if entry is not None and not entry[1].gated]
        framework = self._frameworks.get(members[0].pod.spec.scheduler_name) if members else None
        if state is None or framework is None:
            return None
        namespace, _, name = key.partition("/")
        info = PodGroupInfo(namespace, name, tuple(queued.info for queued in members))
        self._cache.update_snapshot(self._snapshot)
        self._turn_end_ns = self._now_ns() + _TURN_NS
        placements: list[PlacementFacts] = []
        group, cycle_state = SchedulingGroup(info, framework, members), PodGroupCycleState(state.copy())
        result = await self.find_nodes(group, cycle_state, post_filters=False, evaluated=placements)
        return attempt_facts(result, len(members), placements)

    def _attempt_finished(self, key: str, facts: PodGroupAttemptFacts) -> None:
        self.failed.pop(key, None)
        if facts.result != "scheduled":
            self.failed[key] = facts
            if len(self.failed) > MAX_FAILED:
                del self.failed[next(iter(self.failed))]
        if self._group_traces is not None:
            self._group_traces.attempt_finished(key, facts)

    async def find_nodes(
        self,
        group: SchedulingGroup,
        state: PodGroupCycleState,
        *,
        post_filters: bool = True,
        evaluated: list[PlacementFacts] | None = None,
    ) -> GroupResult:
        """Choose nodes for the members; the snapshot and `state.pods` are as before afterwards.

        post_filters: run the PostFilter plugins (preemption) for members without a node. evaluated: gets an entry for
        each placement.
        """
        start_ns = self._now_ns()
        if not self._topology_aware:
            result = await self._try_members(group, state, None, post_filters)
            if evaluated is not None:
                evaluated.append(placement_facts("", start_ns, self._now_ns(), result))
            return result
        points = group.framework.placements
        placements, status = points.run_generate(state, group.info, self._snapshot)
        if status is not None:
            return GroupResult(status=status)
        results: list[GroupResult] = []
        for placement in placements:
            rows = placement.rows if len(placement.rows) < len(self._snapshot) else None
            result = await self._try_members(group, state, rows, post_filters)
            if evaluated is not None:
                end_ns = self._now_ns()
                evaluated.append(placement_facts(placement.name, start_ns, end_ns, result))
                start_ns = end_ns
            if result.is_error:
                return result
            results.append(msgspec.structs.replace(result, placement=placement.name))
        feasible = [
            (placement, result) for placement, result in zip(placements, results, strict=True) if result.is_feasible
        ]
        if not feasible:
            return none_of_placements(results[0], len(placements))
        return self._best(group, state, feasible)

    def _best(
        self, group: SchedulingGroup, state: PodGroupCycleState, feasible: Sequence[tuple[Placement, GroupResult]]
    ) -> GroupResult:
        """Return the result of the placement with the highest score; one of them at random if there are several."""
        if len(feasible) == 1:
            return feasible[0][1]
        proposals = [
            PodGroupAssignments(
                placement, tuple((member.attempt.queued.info, member.node) for member in result.members if member.node)
            )
            for placement, result in feasible
        ]
        try:
            scores = group.framework.placements.run_score(state, group.info, self._snapshot, proposals).tolist()
        except SchedulingError as error:
            return GroupResult(status=Status(Code.ERROR, (str(error),), error.plugin))
        highest = max(scores)
        best = [result for (_, result), score in zip(feasible, scores, strict=True) if score == highest]
        return best[self._rng.randrange(len(best))]

    async def _try_members(
        self, group: SchedulingGroup, state: PodGroupCycleState, rows: Rows | None, post_filters: bool
    ) -> GroupResult:
        """Choose nodes among `rows` (None: all) for one member after the other, each with the nodes of those before it.

        Afterwards, everything is undone.
        """
        members: list[MemberResult] = []
        try:
            for queued in group.members:
                member = await self._try_member(group, state, queued, rows, post_filters)
                members.append(member)
                if member.is_error:
                    break
                await self._yield()
        finally:
            for member in reversed(members):
                if member.node:
                    self._undo(member.attempt, state)
                    member.attempt.reserve = None  # for the trace: the node was not reserved yet
        return group_result(members)

    async def _try_member(
        self,
        group: SchedulingGroup,
        state: PodGroupCycleState,
        queued: QueuedPodInfo,
        rows: Rows | None,
        post_filters: bool,
    ) -> MemberResult:
        """Choose a node for a member, and assume and reserve it in the snapshot. Raises nothing but cancellation."""
        self._attempts += 1
        measured = self._attempts % MEASURED_CYCLES == 0
        attempt = Attempt(group.framework, queued, self._now_ns(), measured=measured)
        attempt.state.pod_group_cycle = state
        self._traces.enter_span(queued.pod)
        node = ""
        failure: Failure | None = None
        permit: Status | None = None
        try:
            node, failure = await self._find_node(attempt, rows, post_filters)
            if node:
                self._assume(attempt, node, state)
                permit = self._steps.reserve(attempt)
                if permit is not None and permit.code is not Code.WAIT:
                    failure = self._failed_attempts.failure_of(node, permit)
                    node, permit = "", None
        except Exception as error:  # a mistake of ours or of a plugin's array: it costs this attempt, not the scheduler
            log.exception("scheduling failed", extra={"pod": queued.key})
            node, failure = "", Failure(f"{type(error).__name__}: {error}")
        if not node and attempt.node:
            self._undo(attempt, state)
        return MemberResult(attempt, node, failure, permit, self._now_ns() - attempt.start_ns)

    async def _find_node(self, attempt: Attempt, rows: Rows | None, post_filters: bool) -> tuple[str, Failure | None]:
        """Return (node, why the pod does not fit now). With both, preemption makes room on the node."""
        try:
            return await self._steps.choose_node(attempt, rows), None
        except FitError as error:
            nomination = await self._steps.post_filter(attempt, error) if post_filters else WITHDRAWN
            return nomination.node_name, Failure(str(error), error.diagnosis, nomination)
        except NoNodesAvailable as error:
            return "", Failure(str(error), Diagnosis(NodeToStatus(self._snapshot)))
        except SchedulingError as error:
            log.warning("scheduling failed", extra={"pod": attempt.pod_info.key, "error": str(error)})
            return "", Failure(str(error))

    def _assume(self, attempt: Attempt, node: str, state: PodGroupCycleState) -> None:
        assumed = with_node(attempt, node)
        self._snapshot.assume_pod(assumed)
        state.pods.assume(assumed.pod)
        attempt.pod_info, attempt.node = assumed, node

    def _undo(self, attempt: Attempt, state: PodGroupCycleState) -> None:
        """Undo _assume() and the Reserve plugins."""
        queued = attempt.queued
        attempt.framework.reserve.run_unreserve(attempt.state, attempt.pod_info, attempt.node)
        self._snapshot.forget_pod(queued.uid)
        state.pods.forget(queued.uid)
        attempt.pod_info, attempt.node = queued.info, ""

    async def _submit(self, group: SchedulingGroup, result: GroupResult) -> None:
        """Start the binding of the members that fit, if the group can be scheduled; requeue all others."""
        for index, queued in enumerate(group.members):
            member = result.members[index] if index < len(result.members) else None
            attempt = member.attempt if member is not None else Attempt(group.framework, queued)
            attempt.start_ns = self._now_ns() - (member.duration_ns if member is not None else 0)
            self._traces.enter_span(queued.pod)
            failure = member_failure(result, member, self._snapshot)
            if failure is None and self._is_deleted(queued, group.info.key):
                failure = Failure("the pod was deleted during the scheduling cycle of its group")
            if failure is not None:
                self._failed_attempts.requeue(attempt, *failure)
            elif member is not None:
                attempt.state.pod_group_cycle = None  # from here on, the pod is like one that is scheduled on its own
                if self._steps.assume_and_reserve(attempt, member.node):
                    self._bind(attempt)
            await self._yield()

    def _is_deleted(self, queued: QueuedPodInfo, key: str) -> bool:
        """Return True if the pod was deleted since it was popped. If assumed, it would wait on permit to the end."""
        state = self._live_state(key)
        return state is None or queued.uid not in state.pods

    def _live_state(self, key: str) -> PodGroupState | None:
        return self._cache.pod_groups.get(key) if self._cache.pod_groups is not None else None

    def _report(self, group: SchedulingGroup, result: GroupResult, start_ns: int) -> None:
        """Count the attempt, and request the condition of the PodGroup."""
        status = result.status
        outcome: GroupAttemptResult
        if status is None:
            outcome, condition = "scheduled", GroupCondition("True", "Scheduled", "")
        elif status.is_rejection:
            outcome = "waiting_on_preemption" if result.waits_for_preemption else "unschedulable"
            condition = GroupCondition("False", "Unschedulable", status.message)
        else:
            outcome, condition = "error", GroupCondition("False", "SchedulerError", status.message)
            extra = {"pod_group": group.info.key, "error": status.message}
            log.error("scheduling a pod group failed", extra=extra)
        seconds = (self._now_ns() - start_ns) / 1e9
        self._metrics.pod_group_attempt(outcome, group.framework.profile_name, seconds)
        self._conditions.set(group.info.key, condition)

    async def _yield(self) -> None:
        """Let the event loop's other tasks run if this turn was long enough."""
        if self._now_ns() >= self._turn_end_ns:
            await asyncio.sleep(0)
            self._turn_end_ns = self._now_ns() + _TURN_NS
