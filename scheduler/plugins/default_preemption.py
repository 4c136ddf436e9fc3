"""DefaultPreemption: makes room for a pod that fits nowhere, by evicting pods of lower priority.

Every node where that may help is tried dry, in a copy: all lower pods off, then back on again, the important ones
first, as far as the pod still fits. The best of these nodes is nominated; its victims are evicted in the background.
Source: plugins/defaultpreemption and framework/preemption of v1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from kubeloop.kube.objects.api_types import Pod, PodDisruptionBudget
from kubeloop.kube.selectors import Selector, selector_from
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.dry_run import DryRuns
from kubeloop.scheduler.api.events import POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extender import ExtenderError
from kubeloop.scheduler.api.extension_points import NodeToStatusReader, PostFilterResult, PostFilterReturn
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import failed, on_event, unresolvable, unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.config.plugin_args import DefaultPreemptionArgs
from kubeloop.scheduler.framework.fit_error import fit_error_message
from kubeloop.scheduler.plugins.preemption_eviction import Evictions

if TYPE_CHECKING:
    from kubeloop.scheduler.api.extender import Extender
    from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
    from kubeloop.scheduler.cache.snapshot import Snapshot

_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_MAX_TRIED = 4  # classes of preemptors whose dry runs are remembered
_NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(slots=True)
class Candidate:
    """A node where the pod fits once `victims` are gone, the most important first; pdb_violations: among them.

    rank: the lower, the better; of equal ones the victims' start decides: see `earliest_start`.
    """

    node: str
    victims: tuple[PodInfo, ...]
    pdb_violations: int
    rank: tuple[int, ...] = field(init=False)
    _first_start: datetime | None = field(init=False, default=None, compare=False)
    _all_started: bool | None = field(init=False, default=None, compare=False)  # None: nobody has looked yet

    def __post_init__(self) -> None:
        # Priorities moved above 0, so that more victims of negative priority are not better than fewer.
        priorities = sum([victim.priority + (1 << 31) for victim in self.victims])
        self.rank = (self.pdb_violations, self.victims[0].priority, priorities, len(self.victims))

    def earliest_start(self, now: datetime) -> datetime:
        """When the first of the most important victims started; whoever has not is taken for starting now."""
        if self._all_started is None:
            highest = self.victims[0].priority
            starts = [each.pod.status.start_time for each in self.victims if each.priority == highest]
            self._first_start = min([each for each in starts if each is not None], default=None)
            self._all_started = None not in starts
        if self._first_start is None:
            return now
        return self._first_start if self._all_started else min(self._first_start, now)


_Tried = tuple["NodeInfo", int, Candidate | Status]
"""(node, stamp of the nominations to it, what a dry run there came to)"""


class _DryRunFailed(Exception):
    """A plugin failed to follow; `status` says which."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class DryRun(msgspec.Struct):
    """candidates: where preemption helps; rejections: why it does not, by node."""

    candidates: list[Candidate] = msgspec.field(default_factory=list)
    rejections: dict[str, Status] = msgspec.field(default_factory=dict)


class DefaultPreemption:
    name = "DefaultPreemption"

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        self._handle = handle
        self._percentage = args.min_candidate_nodes_percentage
        self._absolute = args.min_candidate_nodes_absolute
        self._evictions = Evictions(handle, self.name)
        self._no_victims = unresolvable("", _NO_VICTIMS)
        self._under_way = unresolvable(self.name, "waiting for the preemption for this pod to be finished")
        # By class and priority of the preemptor, the last used last.
        self._tried: dict[tuple[int, int], tuple[object, dict[str, _Tried]]] = {}

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """A pod stays out of the queue while its victims are being evicted: it would only find them still there."""
        if self._evictions.under_way_for(pod.metadata.uid):
            return self._under_way
        return None

    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, statuses: NodeToStatusReader
    ) -> PostFilterReturn | Awaitable[PostFilterReturn]:
        """Waits only if an extender wants a say in the choice."""
        reason = self.ineligible_reason(pod, snapshot, statuses)
        if reason:
            return None, self._unhelpful(reason)
        potential = list(filter(snapshot.row_of.__contains__, statuses.nodes_with_code(Code.UNSCHEDULABLE)))
        dry_run = self.dry_run(state, pod, snapshot, potential)
        if not dry_run.candidates:
            errors = [each for each in dry_run.rejections.values() if each.code is Code.ERROR]
            if errors:
                return None, failed(self.name, f"preemption: {errors[0].message}")
            return PostFilterResult(), self._unhelpful(_fit_error(len(snapshot), dry_run.rejections.values()))
        asked = [each for each in self._handle.extenders if each.preempts and each.is_interested(pod.pod)]
        if asked:
            return self._preempt_with_consent(pod, snapshot, dry_run.candidates, asked)
        return self._preempt(pod, dry_run.candidates)

    def _preempt(self, pod: PodInfo, candidates: Sequence[Candidate]) -> PostFilterReturn:
        best = best_candidate(candidates, self._handle.clock.now())
        self._evictions.start(pod, best.node, best.victims)
        return PostFilterResult(best.node, len(best.victims)), None

    async def _preempt_with_consent(
        self, pod: PodInfo, snapshot: Snapshot, candidates: Sequence[Candidate], extenders: Iterable[Extender]
    ) -> PostFilterReturn:
        """One extender after the other says which candidates are left, and with which victims."""
        for extender in extenders:
            victims = {each.node: (each.victims, each.pdb_violations) for each in candidates}
            try:
                left = await extender.process_preemption(pod.pod, victims)
                candidates = [
                    self._agreed(extender, snapshot, node, *agreed)
                    for node, agreed in left.items()
                    if agreed[0] or not extender.ignorable
                ]
            except ExtenderError as error:
                if extender.ignorable:
                    continue
                return None, failed(self.name, f"preemption: {error}")
            if not candidates:
                return None, self._unhelpful("no candidate node for preemption")
        return self._preempt(pod, candidates)

    def _agreed(
        self, extender: Extender, snapshot: Snapshot, node: str, uids: Sequence[str], violations: int
    ) -> Candidate:
        """Raises ExtenderError for a node or victim that is not there."""
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
        return Candidate(node, tuple(sorted((info.pods[uid] for uid in uids), key=self._importance)), violations)

    def forget(self, uid: str) -> None:
        """The pod `uid` is gone, or no longer waits for its victims."""
        self._evictions.forget(uid)

    def _unhelpful(self, message: str) -> Status:
        return unschedulable(self.name, f"preemption: {message}")

    def ineligible_reason(self, pod: PodInfo, snapshot: Snapshot, statuses: NodeToStatusReader) -> str:
        """Why this pod may not preempt now; "" if it may."""
        if pod.pod.spec.preemption_policy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        nominated = pod.pod.status.nominated_node_name
        if nominated:
            status = statuses.get(nominated)
            if status is not None and status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return ""  # nobody who goes there can help any more
            info = snapshot.get(nominated)
            if info is not None and any(
                other.priority < pod.priority and _is_being_preempted(other.pod) for other in info.pods.values()
            ):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    # --- dry run ---------------------------------------------------------------------------------------------------

    def dry_run(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, nodes: Sequence[str]) -> DryRun:
        """Try `nodes` from a random one on, until enough candidates are found."""
        found = DryRun()
        if not nodes:
            return found
        wanted = max(len(nodes) * self._percentage // 100, self._absolute)
        offset = self._handle.rng.randrange(len(nodes))
        budgets = [_Budget(each) for each in self._handle.listers.pod_disruption_budgets.list()]
        without_violations = 0
        dry_runs = self._handle.dry_runs(state, pod)
        nominator = self._handle.nominator
        own_node = nominator.node_of(pod.uid)  # where others of its class are in another case
        known = self._tried_before(pod, snapshot) if dry_runs.only_sums else {}
        for index in range(len(nodes)):
            info = snapshot.get(nodes[(offset + index) % len(nodes)])
            assert info is not None
            stamp = nominator.stamp(info.name)
            before = known.get(info.name)
            if before is not None and before[0] is info and before[1] == stamp and info.name != own_node:
                tried = before[2]
            else:
                tried = self._try_node(dry_runs, pod, info, snapshot, budgets)
                if info.name != own_node:
                    known[info.name] = (info, stamp, tried)
            if isinstance(tried, Status):
                found.rejections[info.name] = tried
                continue
            found.candidates.append(tried)
            without_violations += tried.pdb_violations == 0
            if without_violations and len(found.candidates) >= wanted:
                break
        return found

    def _tried_before(self, pod: PodInfo, snapshot: Snapshot) -> dict[str, _Tried]:
        """What dry runs of pods like this one came to, by node: right as long as the node, its nominations and all
        disruption budgets are the same. Only for pods whose filters ask for nothing on other nodes."""
        stamp = self._handle.listers.pod_disruption_budgets.version
        key = (snapshot.classes.number(pod.pod), pod.priority)
        kept = self._tried.pop(key, None)
        if kept is None or kept[0] != stamp:
            kept = (stamp, {})
        self._tried[key] = kept
        while len(self._tried) > _MAX_TRIED:
            del self._tried[next(iter(self._tried))]
        return kept[1]

    def _try_node(
        self, dry_runs: DryRuns, pod: PodInfo, info: NodeInfo, snapshot: Snapshot, budgets: Sequence[_Budget]
    ) -> Candidate | Status:
        priority = pod.priority
        lower = [other for other in info.pods.values() if other.priority < priority]
        if not lower:
            return self._no_victims
        capacity = dry_runs.free_capacity(info, snapshot)
        if capacity is not None:
            for other in lower:
                capacity.remove_pod(other)
            if capacity.is_sufficient:
                return self._chosen(info, lower, budgets, capacity.add_pod_if_fits)
        node = dry_runs(info)
        for other in lower:
            status = node.remove_pod(other)
            if status is not None:
                return status
        status = node.run_filters()
        if status is not None:
            return status

        def stays(other: PodInfo) -> bool:
            if node.add_pod(other) is None and node.run_filters() is None:
                return True
            status = node.remove_pod(other)
            if status is not None:
                raise _DryRunFailed(status)
            return False

        try:
            return self._chosen(info, lower, budgets, stays)
        except _DryRunFailed as failure:
            return failure.status

    def _chosen(
        self, info: NodeInfo, lower: list[PodInfo], budgets: Sequence[_Budget], stays: Callable[[PodInfo], bool]
    ) -> Candidate | Status:
        """Of the pods of lower priority, all gone from the node, those that cannot come back, the important ones being
        asked first. `lower` is put into that order."""
        lower.sort(key=self._importance)
        violating, harmless = _split_by_violation(lower, budgets) if budgets else ([], lower)
        victims: list[PodInfo] = []
        violations = 0
        for position, other in enumerate((*violating, *harmless)):
            if not stays(other):
                victims.append(other)
                violations += position < len(violating)
        if not victims:
            return failed(self.name, f'expected at least one victim pod on node "{info.name}"')
        if violating:
            victims.sort(key=self._importance)  # else they are in this order already
        return Candidate(info.name, tuple(victims), violations)

    def _importance(self, pod: PodInfo) -> tuple[int, datetime]:
        """Sorts the most important first: the highest priority, then who runs longest. One that did not start is taken
        for starting now."""
        return -pod.priority, pod.pod.status.start_time or self._handle.clock.now()

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Victims that go wake the pod through the plugins that rejected it; this one only stands for the wait."""
        return (on_event(POD, ActionType.DELETE, _never),)


def _never(pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
    return Hint.SKIP


def _is_being_preempted(pod: Pod) -> bool:
    if pod.metadata.deletion_timestamp is None:
        return False
    for condition in pod.status.conditions:
        if condition.type == "DisruptionTarget":
            return condition.status == "True" and condition.reason == "PreemptionByScheduler"
    return False


class _Budget:
    """A PodDisruptionBudget as a dry run spends it."""

    __slots__ = ("allowed", "disrupted", "namespace", "selector")

    def __init__(self, budget: PodDisruptionBudget) -> None:
        self.namespace = budget.metadata.namespace
        self.allowed = budget.status.disruptions_allowed
        self.disrupted = budget.status.disrupted_pods
        self.selector: Selector | None
        try:
            self.selector = selector_from(budget.spec.selector)
        except ValueError:  # a malformed one protects nobody
            self.selector = None

    def protects(self, pod: Pod) -> bool:
        metadata = pod.metadata
        if self.selector is None or self.selector.empty or metadata.namespace != self.namespace:
            return False
        # Whom the API server already lets go is not counted twice.
        return self.selector.matches(metadata.labels) and metadata.name not in self.disrupted


def _split_by_violation(pods: Iterable[PodInfo], budgets: Sequence[_Budget]) -> tuple[list[PodInfo], list[PodInfo]]:
    """(pods whose eviction would violate a budget, the others), each in the given order."""
    left = [budget.allowed for budget in budgets]
    violating: list[PodInfo] = []
    harmless: list[PodInfo] = []
    for pod in pods:
        violates = False
        if pod.pod.metadata.labels:
            for index, budget in enumerate(budgets):
                if budget.protects(pod.pod):
                    left[index] -= 1
                    violates = violates or left[index] < 0
        (violating if violates else harmless).append(pod)
    return violating, harmless


def best_candidates(candidates: Sequence[Candidate], now: datetime) -> list[Candidate]:
    """Those that none is better than: fewest violations, lowest highest priority, lowest sum of priorities, fewest
    victims, latest start of the first of the most important victims."""
    lowest = min(each.rank for each in candidates)
    best = [each for each in candidates if each.rank == lowest]
    if len(best) == 1:
        return best
    starts = [each.earliest_start(now) for each in best]
    latest = max(starts)
    return [each for each, start in zip(best, starts, strict=True) if start == latest]


def best_candidate(candidates: Sequence[Candidate], now: datetime) -> Candidate:
    return best_candidates(candidates, now)[0]


def _fit_error(num_all_nodes: int, rejections: Iterable[Status]) -> str:
    counts: Counter[str] = Counter()
    tried = 0
    for status in rejections:
        tried += 1
        counts.update(status.reasons)
    if num_all_nodes > tried:
        counts[_NOT_HELPFUL] += num_all_nodes - tried
    return fit_error_message(num_all_nodes, counts)
