"""Choice of the victims of a preemption on each node that it may help: a dry run without pods of lower priority.

Source: SelectVictimsOnNode of plugins/defaultpreemption, DryRunPreemption of framework/preemption, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.dry_run import DryRuns
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import failed, unresolvable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import DefaultPreemptionArgs
from kubeloop.scheduler.plugins.preemption.candidates import Candidate
from kubeloop.scheduler.plugins.preemption.disruption_budgets import Budget, split_by_violation

_MAX_CACHED_PREEMPTORS = 4  # classes and priorities of preemptors whose dry runs are cached
_NO_VICTIMS = unresolvable("", "No preemption victims found for incoming pod")

_CachedDryRun = tuple["NodeInfo", int, Candidate | Status]
"""(node, stamp of the nominations to it, result of the dry run)"""


class _DryRunFailed(Exception):
    """A PreFilter extension failed in a dry run; `status` has the error."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class DryRunResult(msgspec.Struct):
    """candidates: nodes where preemption helps; rejections: by node, why it does not. message: of all rejections."""

    candidates: list[Candidate] = msgspec.field(default_factory=list)
    rejections: dict[str, Status] = msgspec.field(default_factory=dict)
    message: str = ""


class _CachedResults(msgspec.Struct):
    """Results for one class and priority of pods. budgets: version of the PodDisruptionBudgets.

    hopeless: the last result without candidates, with the snapshot, the versions and the nodes that it holds for.
    """

    budgets: int
    by_node: dict[str, _CachedDryRun] = msgspec.field(default_factory=dict)
    hopeless: tuple[Snapshot, tuple[int, int], Sequence[str], DryRunResult] | None = None


def importance_at(now: datetime) -> Callable[[PodInfo], tuple[int, datetime, str]]:
    """Return a sort key, most important first: highest priority, then earliest start (`now` if not started).

    The order of pods that are equal in both is open in kube-scheduler. Here it is that of their UIDs, so that victims
    do not depend on the order in which pods came to the node.
    """

    def importance(pod: PodInfo) -> tuple[int, datetime, str]:
        return -pod.priority, pod.pod.status.start_time or now, pod.uid

    return importance


class VictimSelection:
    """Selects victims for one pod. plugin: the name for the status of an error."""

    def __init__(self, handle: Handle, args: DefaultPreemptionArgs, plugin: str) -> None:
        self._handle = handle
        self._percentage = args.min_candidate_nodes_percentage
        self._absolute = args.min_candidate_nodes_absolute
        self._plugin = plugin
        # By class and priority of the preemptor, least recently used first.
        self._dry_run_cache: dict[tuple[int, int], _CachedResults] = {}

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
        results = self._cached_results(pod, snapshot) if dry_runs.only_sums else _CachedResults(0)
        cached, versions = results.by_node, (snapshot.generation, nominator.version)
        if results.hopeless is not None and not own_node:
            same_snapshot, same_versions, same_nodes, result_before = results.hopeless
            if same_snapshot is snapshot and same_versions == versions and same_nodes == nodes:
                return result_before
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
        if not result.candidates and not own_node:
            results.hopeless = (snapshot, versions, nodes, result)
        return result

    def _cached_results(self, pod: PodInfo, snapshot: Snapshot) -> _CachedResults:
        """Return results of dry runs for this class and priority of pods.

        They hold while the node, its nominations and all PodDisruptionBudgets are unchanged, and only for pods whose
        filters read nothing of other nodes.
        """
        version = self._handle.listers.pod_disruption_budgets.version
        key = (snapshot.classes.number(pod.pod), pod.priority)
        cached = self._dry_run_cache.pop(key, None)
        if cached is None or cached.budgets != version:
            cached = _CachedResults(version)
        self._dry_run_cache[key] = cached
        while len(self._dry_run_cache) > _MAX_CACHED_PREEMPTORS:
            del self._dry_run_cache[next(iter(self._dry_run_cache))]
        return cached

    def _select_victims_on_node(
        self, dry_runs: DryRuns, pod: PodInfo, info: NodeInfo, snapshot: Snapshot, budgets: Sequence[Budget]
    ) -> Candidate | Status:
        priority = pod.priority
        lower_priority = [other for other in info.pods.values() if other.priority < priority]
        if not lower_priority:
            return _NO_VICTIMS
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
            return failed(self._plugin, f'expected at least one victim pod on node "{info.name}"')
        if violating:
            victims.sort(key=importance)  # otherwise they are sorted already
        return Candidate(info.name, tuple(victims), violations)
