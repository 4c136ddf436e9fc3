"""The scheduling algorithm: filter all nodes, score the feasible ones, choose one with the highest score.

Source: schedulePod of pkg/scheduler/schedule_one.go, v1.36. Axes: N nodes, K rows.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.extender import ExtenderError
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE, FilterPaused
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.types import TieBreak
from kubeloop.scheduler.framework.fit_error import Diagnosis, FitError, NodeToStatus, NoNodesAvailable
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.tracing.spans.pod_record import AttemptFacts

if TYPE_CHECKING:
    from kubeloop.scheduler.extenders.extender import HTTPExtender

log = logging.getLogger(__name__)

EXTENDER = "Extender"  # in place of a plugin's name where extenders rejected nodes

_TRACED_SCORES = 5  # number of nodes whose scores are recorded in the trace
_MAX_EXTENDER_PRIORITY = 10


class Algorithm:
    """Chooses a node for each pod. _start_row and _turn continue from pod to pod."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        percentage_of_nodes_to_score: int | None,
        tie_break: TieBreak,
        extenders: Sequence[HTTPExtender],
        rng: random.Random,
        now_ns: Callable[[], int],
    ) -> None:
        """now_ns: the clock of the durations in the trace."""
        self.snapshot = snapshot
        self._percentage = percentage_of_nodes_to_score
        self._tie_break = tie_break
        self._extenders = extenders
        self._rng = rng
        self._now_ns = now_ns
        self._start_row = 0
        self._turn = 0

    async def schedule(self, attempt: Attempt, rows: Rows | None = None) -> str:
        """Return the node for the attempt's pod, and record facts of the attempt. Waits for extenders, and for filters
        that take long.

        rows: the only nodes to choose from, ascending; None: all nodes. Raises FitError or NoNodesAvailable if there is
        none, SchedulingError if a plugin or extender failed.
        """
        snapshot, facts = self.snapshot, attempt.facts
        candidates = snapshot.all_rows if rows is None else rows
        facts.nodes = len(candidates)
        facts.attributes = attempt.state.trace_attributes
        if facts.nodes == 0:
            raise NoNodesAvailable
        diagnosis = Diagnosis(NodeToStatus(snapshot))
        attempt.state.can_pause = True
        try:
            rows = await self._feasible(attempt, candidates, diagnosis)
        finally:
            attempt.state.can_pause = False  # from here on, filters run in dry runs only
        facts.feasible = len(rows)
        facts.rejections = diagnosis.node_to_status.plugins() or None
        if len(rows) == 0:
            raise FitError(facts.nodes, diagnosis)
        if len(rows) == 1:
            facts.node = snapshot.node_infos[int(rows[0])].name
        else:
            facts.score_start_ns = self._now_ns()
            totals = await self._totals(attempt, rows)
            facts.node = self._choose(rows, totals, facts)
            facts.score_end_ns = self._now_ns()
        return facts.node

    async def _feasible(self, attempt: Attempt, rows: Rows, diagnosis: Diagnosis) -> Rows:
        """Return those of `rows` on which the pod fits."""
        snapshot, facts = self.snapshot, attempt.facts
        filters, state, pod = attempt.framework.filters, attempt.state, attempt.pod_info
        facts.pre_filter_start_ns = self._now_ns()
        names, rejection, confining = filters.run_pre_filter(state, pod, snapshot)
        facts.pre_filter_end_ns = filter_start_ns = self._now_ns()
        diagnosis.unschedulable_plugins.update(confining)
        if rejection is not None:
            diagnosis.node_to_status.absent = rejection
            diagnosis.pre_filter_message = rejection.message
            diagnosis.note(rejection)
            return snapshot.all_rows[:0]
        nominated = snapshot.row_of.get(pod.pod.status.nominated_node_name)
        if nominated is not None and (rows is snapshot.all_rows or nominated in rows):
            # Preemption made room there, so it is likely the only feasible node; if not, all nodes are tried. An error
            # here will occur on all nodes again.
            first = np.array([nominated], np.intp)
            try:
                try:
                    fitting = filters.run_filters(state, pod, snapshot, first, diagnosis)
                except FilterPaused as pause:
                    fitting = await self._after_pause(pause, attempt, first, diagnosis)
                fitting = await self._pass_extenders(pod.pod, fitting, diagnosis)
            except SchedulingError as error:
                log.error("evaluation failed on the nominated node", extra={"pod": pod.key, "error": str(error)})
                diagnosis.errors.clear()
                fitting = first[:0]
            if len(fitting):
                facts.filter_start_ns, facts.filter_end_ns = filter_start_ns, self._now_ns()
                return fitting
        if names is not None:
            named = _rows_of(snapshot, names)
            rows = named if rows is snapshot.all_rows else np.intersect1d(rows, named, assume_unique=True)
            reason = f"node(s) didn't satisfy plugin(s) [{' '.join(confining)}]"
            diagnosis.node_to_status.absent = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))
        try:
            feasible = filters.run_filters(state, pod, snapshot, rows, diagnosis)
        except FilterPaused as pause:
            feasible = await self._after_pause(pause, attempt, rows, diagnosis)
        feasible = self._sampled(attempt.framework.percentage_of_nodes_to_score, rows, feasible)
        before = len(feasible)
        feasible = await self._pass_extenders(pod.pod, feasible, diagnosis)
        if len(feasible) != before:
            diagnosis.unschedulable_plugins.add(EXTENDER)
        facts.filter_start_ns, facts.filter_end_ns = filter_start_ns, self._now_ns()
        return feasible

    async def _after_pause(self, pause: FilterPaused, attempt: Attempt, rows: Rows, diagnosis: Diagnosis) -> Rows:
        """Wait for the filter that takes long, then return those of `rows` that pass all filters."""
        while True:
            diagnosis.restart(self.snapshot)
            await pause.work
            try:
                return attempt.framework.filters.run_filters(
                    attempt.state, attempt.pod_info, self.snapshot, rows, diagnosis
                )
            except FilterPaused as another:
                pause = another

    def _sampled(self, percentage: int | None, rows: Rows, feasible: Rows) -> Rows:
        """Return the feasible nodes that kube-scheduler finds before it stops, starting where it stopped last.

        percentage: percentageOfNodesToScore of the profile, if it is set.
        """
        if percentage is None:
            percentage = self._percentage
        if percentage is None or len(rows) == 0:
            return feasible
        num_to_find = num_feasible_nodes_to_find(len(rows), percentage)
        first = rows[self._start_row % len(rows)]
        rotated = np.roll(feasible, -int(np.searchsorted(feasible, first)))[:num_to_find]
        processed = len(rows)
        if len(feasible) > num_to_find:
            index = int(np.searchsorted(rows, rotated[-1])) - self._start_row % len(rows)
            processed = index % len(rows) + 1
        self._start_row = (self._start_row + processed) % len(self.snapshot)
        return np.sort(rotated)

    async def _pass_extenders(self, pod: Pod, rows: Rows, diagnosis: Diagnosis) -> Rows:
        for extender in self._extenders:
            if len(rows) == 0:
                break
            if not extender.filters or not extender.is_interested(pod):
                continue
            infos = [self.snapshot.node_infos[row] for row in rows.tolist()]
            try:
                result = await extender.filter(pod, infos)
            except ExtenderError as error:
                if extender.ignorable:
                    continue
                raise SchedulingError(str(error), EXTENDER) from error
            for name, message in result.failed.items():
                diagnosis.node_to_status.set(name, Status(Code.UNSCHEDULABLE, (message,), EXTENDER))
            for name, message in result.failed_and_unresolvable.items():
                status = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (message,), EXTENDER)
                diagnosis.node_to_status.set(name, status)
            rows = _rows_of(self.snapshot, result.feasible)
        return rows

    async def _totals(self, attempt: Attempt, rows: Rows) -> Scores:
        """Return the total scores int64 [K] of the feasible rows."""
        scores, state, pod = attempt.framework.scores, attempt.state, attempt.pod_info
        if not scores.scorers and not self._extenders:
            return np.ones(len(rows), np.int64)
        scores.run_pre_score(state, pod, self.snapshot, rows)
        totals = scores.run_scores(state, pod, self.snapshot, rows)
        for extender in self._extenders:
            if not extender.prioritizes or not extender.is_interested(pod.pod):
                continue
            infos = [self.snapshot.node_infos[row] for row in rows.tolist()]
            try:
                priorities = await extender.prioritize(pod.pod, infos)
            except ExtenderError:
                continue  # as in kube-scheduler: the other scores decide
            factor = extender.weight * (MAX_NODE_SCORE // _MAX_EXTENDER_PRIORITY)
            totals += np.array([priorities.get(info.name, 0) * factor for info in infos], np.int64)
        return totals

    def _choose(self, rows: Rows, totals: Scores, facts: AttemptFacts) -> str:
        """Return one of the nodes with the highest total score: at random, or round robin."""
        best = (totals == totals.max()).nonzero()[0]
        if self._tie_break == "random":
            index = int(best[self._rng.randrange(len(best))])
        else:
            index = int(best[self._turn % len(best)])
            self._turn += 1
        infos = self.snapshot.node_infos
        traced = [index, *(other for other in best[:_TRACED_SCORES].tolist() if other != index)]
        level = totals[index]
        while len(traced) < min(_TRACED_SCORES, len(totals)):  # sorting would take longer than choosing a node
            level = totals[totals < level].max()
            traced += np.flatnonzero(totals == level)[:_TRACED_SCORES].tolist()
        del traced[_TRACED_SCORES:]
        facts.best_nodes = tuple([infos[rows.item(i)].name for i in traced])
        facts.best_totals = tuple([totals.item(i) for i in traced])
        return facts.best_nodes[0]


def num_feasible_nodes_to_find(num_all_nodes: int, percentage: int) -> int:
    """Return the number of feasible nodes at which filtering stops. percentage 0: adaptive. Source: schedule_one.go."""
    if num_all_nodes < 100:
        return num_all_nodes
    if percentage == 0:
        percentage = max(5, 50 - num_all_nodes // 125)
    return max(100, num_all_nodes * percentage // 100)


def _rows_of(snapshot: Snapshot, node_names: Iterable[str]) -> Rows:
    """Return the rows of the nodes that exist, ascending."""
    row_of = snapshot.row_of
    return np.array(sorted(row_of[name] for name in node_names if name in row_of), np.intp)
