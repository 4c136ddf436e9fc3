"""Choice of the victims of a preemption on each node that it may help: a dry run without pods of lower priority.

Source: SelectVictimsOnNode of plugins/defaultpreemption, DryRunPreemption of framework/preemption, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
import numpy as np

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.dry_run import DryRuns
from kubeloop.scheduler.api.extension_points import RowStatuses
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import explain_rows_as, failed, unresolvable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Mask, Rows
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import DefaultPreemptionArgs
from kubeloop.scheduler.framework.fit_error import NodeToStatus
from kubeloop.scheduler.framework.versioned_cache import VersionedCache
from kubeloop.scheduler.plugins.preemption import victim_table
from kubeloop.scheduler.plugins.preemption.candidates import Candidate, best_candidate, importance_at
from kubeloop.scheduler.plugins.preemption.disruption_budgets import Budget, split_by_violation
from kubeloop.scheduler.plugins.preemption.victim_table import Choices, VictimRows, VictimTable

_MAX_HOPELESS = 4
_NOT_HELPFUL = unresolvable("", "Preemption is not helpful for scheduling")
_NO_VICTIMS = unresolvable("", "No preemption victims found for incoming pod")


class _DryRunFailed(Exception):
    """A PreFilter extension failed in a dry run; `status` has the error."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class DryRunResult(msgspec.Struct):
    """rejections: why preemption does not help on nodes. victims: the candidates as rows, in place of the list."""

    rejections: NodeToStatus
    listed: list[Candidate] = msgspec.field(default_factory=list)
    victims: VictimRows | None = None

    @property
    def has_candidates(self) -> bool:
        return bool(self.listed) or self.victims is not None

    @property
    def candidates(self) -> list[Candidate]:
        """The nodes where preemption helps, in the order in which they were tried."""
        return self.listed if self.victims is None else list(map(self.victims.candidate, range(len(self.victims))))

    def best(self, now: datetime) -> Candidate:
        return best_candidate(self.listed, now) if self.victims is None else self.victims.best(now)


class _Hopeless(msgspec.Struct, frozen=True):
    """The last result without candidates for a class and priority of pods, with what it holds for."""

    versions: tuple[int, int, int]
    rows: Rows
    result: DryRunResult


class VictimSelection:
    """Selects victims for one pod. plugin: the name for the status of an error."""

    def __init__(self, handle: Handle, args: DefaultPreemptionArgs, plugin: str) -> None:
        self._handle = handle
        self._percentage = args.min_candidate_nodes_percentage
        self._absolute = args.min_candidate_nodes_absolute
        self._plugin = plugin
        self._budgets: VersionedCache[None, list[Budget]] = VersionedCache(1)
        self._table: VictimTable | None = None
        # By class and priority of the preemptor, least recently used first.
        self._hopeless: dict[tuple[int, int], _Hopeless] = {}

    def dry_run(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> DryRunResult:
        """Select victims on `rows`, starting from a random one, until there are enough candidates."""
        result = DryRunResult(NodeToStatus(snapshot))
        result.rejections.absent = _NOT_HELPFUL
        if not len(rows):
            return result
        offset = self._handle.rng.randrange(len(rows))
        lister = self._handle.listers.pod_disruption_budgets
        budgets = self._budgets.get(None, lister.version, lambda: [Budget(budget) for budget in lister.list()])
        dry_runs, nominator = self._handle.dry_runs(state, pod), self._handle.nominator
        key = (snapshot.classes.number(pod.pod), pod.priority)
        versions = (snapshot.generation, nominator.version, lister.version)
        # Other pods of the class have a different result on the node that this one is nominated to.
        is_shared = dry_runs.only_sums and not nominator.node_of(pod.uid)
        hopeless = self._hopeless.pop(key, None) if is_shared else None
        if hopeless is not None and hopeless.versions == versions and np.array_equal(hopeless.rows, rows):
            self._hopeless[key] = hopeless
            return hopeless.result
        shared_key = key if is_shared else None
        self._select_victims(dry_runs, pod, snapshot, np.roll(rows, -offset), budgets, shared_key, result)
        if is_shared and not result.has_candidates:
            self._hopeless[key] = _Hopeless(versions, rows, result)
            if len(self._hopeless) > _MAX_HOPELESS:
                del self._hopeless[next(iter(self._hopeless))]
        return result

    def _select_victims(
        self,
        dry_runs: DryRuns,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
        budgets: Sequence[Budget],
        shared_key: tuple[int, int] | None,
        result: DryRunResult,
    ) -> None:
        """Add candidates on `rows`, in this order, until there are enough, or the rejections of all to `result`.

        shared_key: class and priority of pods with the same candidates; None: no other pod has them.
        """
        min_candidates = max(len(rows) * self._percentage // 100, self._absolute)
        if self._table is None or self._table.snapshot is not snapshot:
            self._table = VictimTable(snapshot)
        self._table.refresh()
        is_possible = (self._table.lowest_priority < pod.priority)[rows]
        rows, without_victims = _split(rows, is_possible)
        result.rejections.override_rows(np.sort(without_victims), explain_rows_as(_NO_VICTIMS, without_victims))
        choices = self._table.choices(shared_key) if shared_key is not None else None
        rows = self._select_victims_of_rows(self._table, choices, dry_runs, pod, rows, budgets, min_candidates, result)
        for row in rows.tolist():
            info = snapshot.node_infos[row]
            outcome = self._select_victims_on_node(dry_runs, pod, info, budgets)
            if isinstance(outcome, Status):
                result.rejections.set(info.name, outcome)
                continue
            result.listed.append(outcome)
            if len(result.listed) >= min_candidates and any(not other.pdb_violations for other in result.listed):
                break

    def _select_victims_of_rows(
        self,
        table: VictimTable,
        choices: Choices | None,
        dry_runs: DryRuns,
        pod: PodInfo,
        rows: Rows,
        budgets: Sequence[Budget],
        min_candidates: int,
        result: DryRunResult,
    ) -> Rows:
        """Do the same for many rows at once. Returns the rows that still need a dry run of each."""
        snapshot, nominator = table.snapshot, self._handle.nominator
        changed = rows if choices is None else snapshot.changed_since(choices.generation)
        capacity = dry_runs.capacity_needed(snapshot, changed)
        if capacity is None or any(budget.disrupted_pods for budget in budgets):
            return rows
        needed, capacity_only = capacity
        if choices is not None:
            choices.refresh(snapshot, changed, capacity_only, nominator, budgets)
            capacity_only = choices.capacity_only[rows]
        is_tabulated = capacity_only & (snapshot.columns.pod_count <= victim_table.MAX_PODS)[rows]
        rows, others = _split(rows, is_tabulated)
        now = self._handle.clock.now()
        size = min_candidates * 5 // 4 + 16  # with room for some that are no candidates
        if not len(rows):
            return others
        while True:
            try:
                victims = table.victims(rows[:size], pod, needed, nominator, budgets, now, choices)
            except OverflowError:
                return np.concatenate((rows, others))
            is_enough = np.arange(1, len(victims) + 1) >= min_candidates
            is_enough &= np.cumsum(victims.ranks[0] == 0) > 0
            if is_enough.any() or (size >= len(rows) and len(victims)):
                result.victims = victims.first(int(is_enough.argmax()) + 1) if is_enough.any() else victims
                return rows[:0]
            if size >= len(rows):
                break
            size *= 2
        statuses = dry_runs.filter_without(snapshot, rows, *table.sums_below(rows, pod.priority, needed))
        is_rejected = np.array([bool(status.reasons) for status in statuses.statuses], np.bool_)[statuses.codes]
        result.rejections.override_rows(rows[is_rejected], RowStatuses(statuses.codes[is_rejected], statuses.statuses))
        return np.concatenate((rows[~is_rejected], others))

    def _select_victims_on_node(
        self, dry_runs: DryRuns, pod: PodInfo, info: NodeInfo, budgets: Sequence[Budget]
    ) -> Candidate | Status:
        priority = pod.priority
        lower_priority = [other for other in info.pods.values() if other.priority < priority]
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
            return failed(self._plugin, f'expected at least one victim pod on node "{info.name}"')
        if violating:
            victims.sort(key=importance)  # otherwise they are sorted already
        return Candidate(info.name, tuple(victims), violations)


def _split(rows: Rows, mask: Mask) -> tuple[Rows, Rows]:
    """Return the rows where `mask` [K] is true, and the others, in their order."""
    return (rows, rows[:0]) if mask.all() else (rows[mask], rows[~mask])
