"""Explain why a pod is on its node, for `kubeloop explain --scores`: the scores of nodes, plugin by plugin.

Nothing is recorded while pods are scheduled. The scores are computed from the nodes and pods of now, without the pod
itself and without the pods that were bound after it. Axes: K feasible nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.scheduler.framework.points.score_points import ScoreDetails
from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.scheduler.scheduler import Scheduler

_MAX_NODES = 10


class PluginScore(msgspec.Struct, frozen=True):
    """The score of one node by one plugin. normalized: 0 to 100. weighted: normalized times the plugin's weight."""

    plugin: str
    raw: int
    normalized: int
    weighted: int


class NodeScores(msgspec.Struct, frozen=True):
    """total: the sum of the weighted scores."""

    node: str
    total: int
    plugins: tuple[PluginScore, ...]


class ScoreExplanation(msgspec.Struct, rename="camel"):
    """Why a pod is on its node, or on which it would be.

    node: of the pod; "" if it is pending. problem: why there are no scores. nodes: ten with the highest totals, best
    first, and the pod's node. feasible: the number of nodes that the pod fits. rank: of the pod's node, 1 if no other
    has a higher total; 0 without a node, or if the pod would not fit there now. ties: other nodes with the same total,
    among which the scheduler chooses at random. bound_later: pods that were left out. extenders: URLs of extenders that
    score nodes; they are not called.
    """

    node: str = ""
    problem: str = ""
    nodes: list[NodeScores] = []
    feasible: int = 0
    rank: int = 0
    ties: int = 0
    bound_later: int = 0
    extenders: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as a JSON object, names in camel case."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


def explain_scores(scheduler: Scheduler, pod: Pod) -> ScoreExplanation:
    """Return the scores of the nodes for a pod, without yielding to other tasks. The snapshot must be up to date."""
    node_name = pod.spec.node_name
    explanation = ScoreExplanation(node_name)
    framework = scheduler.frameworks.get(pod.spec.scheduler_name)
    if framework is None:
        explanation.problem = f'the scheduler "{pod.spec.scheduler_name}" is another one'
        return explanation
    if scheduler.awaits_call:
        explanation.problem = "the scheduler waits for an extender, devices or preemption, with its nodes in use"
        return explanation
    explanation.extenders = tuple(extender.name for extender in scheduler.extenders if extender.prioritizes)
    later = _bound_later(scheduler, pod)
    explanation.bound_later = len(later)
    unbound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
    snapshot = scheduler.snapshot
    with _without_pods(snapshot, [pod, *later]):
        try:
            rows, details = _score(framework, PodInfo(unbound, scheduler.request_rules), snapshot)
        except SchedulingError as error:
            explanation.problem = str(error)
            return explanation
    explanation.feasible = len(rows)
    if not len(rows):
        explanation.problem = "the pod would fit no node now"
        return explanation
    totals = sum((scores.normalized * scores.weight for scores in details), np.zeros(len(rows), np.int64))
    shown = np.argsort(-totals, kind="stable")[:_MAX_NODES].tolist()
    for index in np.flatnonzero(rows == snapshot.row_of.get(node_name, -1)).tolist():
        explanation.rank = int((totals > totals[index]).sum()) + 1
        explanation.ties = int((totals == totals[index]).sum()) - 1
        shown += [] if index in shown else [index]
    explanation.nodes = [
        NodeScores(
            str(snapshot.names[rows[index]]),
            int(totals[index]),
            tuple(
                PluginScore(scores.plugin, int(scores.raw[index]), int(normalized), int(normalized) * scores.weight)
                for scores in details
                for normalized in (scores.normalized[index],)
            ),
        )
        for index in shown
    ]
    return explanation


def _score(framework: Framework, pod: PodInfo, snapshot: Snapshot) -> tuple[Rows, Sequence[ScoreDetails]]:
    """Return the rows of the nodes that the pod fits, and their scores. Raises SchedulingError if a plugin fails."""
    state = CycleState()
    names, rejection, _ = framework.filters.run_pre_filter(state, pod, snapshot)
    if rejection is not None:
        raise SchedulingError(rejection.message)
    rows = snapshot.all_rows
    if names is not None:
        rows = np.array(sorted(snapshot.row_of[name] for name in names & snapshot.row_of.keys()), np.intp)
    rows = framework.filters.run_filters(state, pod, snapshot, rows, Diagnosis(NodeToStatus(snapshot)))
    if not len(rows):
        return rows, ()
    framework.scores.run_pre_score(state, pod, snapshot, rows)
    return rows, framework.scores.score_details(state, pod, snapshot, rows)


def _bound_later(scheduler: Scheduler, pod: Pod) -> list[Pod]:
    """Return the pods that were bound after `pod`; none if it is pending."""
    bound = _bound_at(pod)
    if bound is None:
        return []
    return [
        other
        for other in scheduler.listers.pods.list()
        if (other_bound := _bound_at(other)) is not None and other_bound > bound
    ]


def _bound_at(pod: Pod) -> datetime | None:
    """Return when the pod was bound, to the second; None if it is pending, or its conditions do not say."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True" and pod.spec.node_name:
            return condition.last_transition_time
    return None


@contextmanager
def _without_pods(snapshot: Snapshot, pods: Sequence[Pod]) -> Iterator[None]:
    """Remove `pods` from the snapshot's nodes, and restore them at the end."""
    uids_on: dict[str, set[str]] = {}
    for pod in pods:
        uids_on.setdefault(pod.spec.node_name, set()).add(pod.metadata.uid)
    nodes = [node for name in uids_on if (node := snapshot.get(name)) is not None]
    copies = [node.clone() for node in nodes]
    for copy in copies:
        for uid in uids_on[copy.name] & copy.pods.keys():
            copy.remove_pod(uid)
    snapshot.update(None, copies)
    try:
        yield
    finally:
        snapshot.update(None, nodes)
