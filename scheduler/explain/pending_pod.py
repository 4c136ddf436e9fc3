"""Explain why a pod is pending, for `kubeloop explain`: per node and plugin, with advice.

Every filter runs on every node, so that a node shows all obstacles, not only the first. Nothing is changed but the
snapshot, which is brought up to date. With thousands of nodes that takes a while: explain_in_slices yields to other
tasks in between, and still explains one point in time, as it uses the nodes and pods of one snapshot.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import is_finished
from kubeloop.kube.objects.resources import NODES
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import ExplainPodPlugin
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.pod_groups import pod_group_key
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.explain.advice import VOLUME_BINDING_ADVICE, advice
from kubeloop.scheduler.explain.claims import ClaimProblem, claim_problems
from kubeloop.scheduler.explain.scores import ScoreExplanation, explain_scores
from kubeloop.scheduler.framework.fit_error import fit_error_message
from kubeloop.scheduler.framework.plugin_calls import SchedulingError, filter_node
from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.scheduler.scheduler import Scheduler

_SLICE, _SNAPSHOT_SLICE = 50, 1000  # nodes explained, or copied, without yielding


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The rejection of the pod by one plugin on one node."""

    plugin: str
    code: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """obstacles: empty if the pod would fit. preemption_helps: it would fit without the pods of lower priority."""

    node: str
    obstacles: tuple[Obstacle, ...]
    preemption_helps: bool = False


@dataclass(slots=True)
class PodExplanation:
    """queue: "active", "backoff", "unschedulable", "gated", "in flight", or "" if the pod is not queued here.

    summary: one sentence. last_attempt: result of the last attempt, from the pod's condition; "" if there was none.
    message: kube-scheduler's, for the current state. retry_seconds: until the backoff expires; 0.0 without backoff.
    shortages: resource -> the least amount missing on any node, millicores for CPU. details: of the plugins that reject
    the pod.
    """

    pod: str
    queue: str = ""
    summary: str = ""
    attempts: int = 0
    last_attempt: str = ""
    retry_seconds: float = 0.0
    rejected_by: tuple[str, ...] = ()
    message: str = ""
    nodes: list[NodeExplanation] = field(default_factory=list)
    shortages: dict[str, int] = field(default_factory=dict)
    details: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    preemption: str = ""
    scores: ScoreExplanation | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "pod": self.pod,
            "queue": self.queue,
            "summary": self.summary,
            "attempts": self.attempts,
            "lastAttempt": self.last_attempt,
            "retrySeconds": self.retry_seconds,
            "rejectedBy": self.rejected_by,
            "message": self.message,
            "nodes": [
                {
                    "node": node.node,
                    "obstacles": [
                        {"plugin": obstacle.plugin, "code": obstacle.code, "reasons": obstacle.reasons}
                        for obstacle in node.obstacles
                    ],
                    "preemptionHelps": node.preemption_helps,
                }
                for node in self.nodes
            ],
            "shortages": self.shortages,
            "details": self.details,
            "advice": self.advice,
            "preemption": self.preemption,
        } | ({"scores": self.scores.to_json()} if self.scores is not None else {})


def explain(
    scheduler: Scheduler, key: str, unknown: Collection[str] = (), *, with_scores: bool = False
) -> PodExplanation:
    """Return the explanation for the pod "namespace/name", without yielding to other tasks.

    unknown: resources (as "persistentvolumes") whose objects may be missing in the caches although they exist.
    """
    explanation = PodExplanation(key)
    for _ in _explain_steps(scheduler, key, explanation, unknown, with_scores=with_scores):
        pass
    return explanation


async def explain_in_slices(scheduler: Scheduler, key: str, *, with_scores: bool = False) -> PodExplanation:
    """Return the explanation, yielding to other tasks every few milliseconds, but not while nodes are scored."""
    explanation = PodExplanation(key)
    for _ in _explain_steps(scheduler, key, explanation, with_scores=with_scores):
        await asyncio.sleep(0)
    return explanation


def _explain_steps(
    scheduler: Scheduler,
    key: str,
    explanation: PodExplanation,
    unknown: Collection[str] = (),
    *,
    with_scores: bool,
) -> Iterator[None]:
    """Fill in `explanation`; the caller may yield to other tasks at each step."""
    pod = scheduler.listers.pods.get(key)
    if pod is None:
        explanation.summary = "there is no such pod"
    elif is_finished(pod):
        explanation.summary = f"the pod has ended: {pod.status.phase}"
    elif pod.spec.node_name:
        _explain_bound(scheduler, pod, explanation, unknown)
    elif pod.spec.scheduler_name not in scheduler.frameworks:
        explanation.summary = f'the pod waits for another scheduler, "{pod.spec.scheduler_name}"'
    else:
        yield from _explain_pending(scheduler, pod, explanation)
        _add_claim_problems(explanation, claim_problems(pod, scheduler.listers, unknown), unknown)
    if with_scores and pod is not None and not is_finished(pod):
        yield from _update_snapshot(scheduler)
        explanation.scores = explain_scores(scheduler, pod)


def _add_claim_problems(
    explanation: PodExplanation, problems: Sequence[ClaimProblem], unknown: Collection[str]
) -> None:
    if not problems:
        return
    if unknown and any(not node.obstacles for node in explanation.nodes):  # the filter of volumes may not have run
        explanation.summary = problems[0].problem
    explanation.details += [problem.problem for problem in problems]
    general = VOLUME_BINDING_ADVICE
    explanation.advice = [problem.advice for problem in problems] + [
        text for text in explanation.advice if text not in general
    ]


def _explain_bound(scheduler: Scheduler, pod: Pod, explanation: PodExplanation, unknown: Collection[str]) -> None:
    """Fill in the state of a pod with spec.nodeName, which a user can set, too."""
    node = pod.spec.node_name
    if NODES.plural in unknown or scheduler.cache.has_node(node):
        explanation.summary = f"the pod is bound to {node}"
        return
    explanation.summary = (
        f"the pod's spec.nodeName is {node}, and there is no such node: nothing starts the pod, and the pod garbage "
        "collector deletes it"
    )
    explanation.advice = [f"add the node {node}, or create the pod again without spec.nodeName"]


def _explain_pending(scheduler: Scheduler, pod: Pod, explanation: PodExplanation) -> Iterator[None]:
    explanation.last_attempt = _last_attempt(pod)
    if _explain_queued(scheduler, pod, explanation):
        return
    yield from _update_snapshot(scheduler)
    framework, state = scheduler.frameworks[pod.spec.scheduler_name], CycleState()
    info = PodInfo(pod, scheduler.request_rules)
    snapshot = scheduler.snapshot
    nodes = tuple(snapshot.node_infos)  # the snapshot may change between steps; these copies do not
    if not nodes:
        explanation.summary = explanation.message = "no nodes available to schedule pods"
        return
    try:
        names, rejection, limiting_plugins = framework.filters.run_pre_filter(state, info, snapshot)
    except SchedulingError as error:
        explanation.summary = explanation.message = str(error)
        return
    if rejection is not None:
        explanation.message = fit_error_message(len(nodes), {}, rejection.message)
        explanation.summary = rejection.message
        explanation.advice = advice([rejection.plugin], pod, nodes, rejection.message, scheduler.feature_gates)
        explanation.details = _details(framework, [rejection.plugin], state, info, snapshot)
        return
    reasons: Counter[str] = Counter()
    plugins: Counter[str] = Counter()
    other_node_reason = f"node(s) didn't satisfy plugin(s) [{' '.join(limiting_plugins)}]"
    other_node_obstacles = tuple(
        Obstacle(plugin, Code.UNSCHEDULABLE_AND_UNRESOLVABLE.api_name, (other_node_reason,))
        for plugin in limiting_plugins
    )
    for number, node in enumerate(nodes, start=1):
        if number % _SLICE == 0:
            yield
        if names is not None and node.name not in names:
            explanation.nodes.append(NodeExplanation(node.name, other_node_obstacles))
            reasons[other_node_reason] += 1
            plugins.update(limiting_plugins)
            continue
        statuses = _obstacles(framework, state, info, node)
        helps = bool(statuses) and _fits_after_preemption(framework, state, info, node, statuses)
        obstacles = tuple(Obstacle(status.plugin, status.code.api_name, status.reasons) for status in statuses)
        explanation.nodes.append(NodeExplanation(node.name, obstacles, helps))
        if statuses:
            reasons.update(statuses[0].reasons)
            plugins.update(status.plugin for status in statuses)
            insufficient = {reason for status in statuses for reason in status.reasons}
            _add_shortages(explanation.shortages, info, node, insufficient)
    yield
    explanation.details = _details(framework, plugins, state, info, snapshot)
    _summarize(explanation, pod, nodes, reasons, plugins, scheduler.feature_gates)


def _explain_queued(scheduler: Scheduler, pod: Pod, explanation: PodExplanation) -> bool:
    """Fill in the state of the pod in the queue. Returns True if it is gated or being bound: filters do not matter."""
    entry = scheduler.queue.get(pod.key)
    if entry is not None:
        explanation.queue, queued = entry
        explanation.attempts = queued.attempts
        explanation.rejected_by = tuple(sorted(queued.rejectors))
        explanation.retry_seconds = scheduler.queue.remaining_backoff_seconds(queued)
        if queued.gated:
            explanation.summary = f"the pod is gated by {queued.gating_plugin}"
            explanation.message = gating_message(scheduler, pod, queued)
            explanation.advice = advice([queued.gating_plugin], pod, message=explanation.message)
            info, snapshot = PodInfo(pod, scheduler.request_rules), scheduler.snapshot
            framework = scheduler.frameworks[pod.spec.scheduler_name]
            explanation.details = _details(framework, [queued.gating_plugin], CycleState(), info, snapshot)
            return True
    elif scheduler.cache.is_assumed(pod):
        assumed = scheduler.cache.get_pod(pod.metadata.uid)
        explanation.queue = "in flight"
        explanation.summary = f"the pod is being bound to {assumed.spec.node_name if assumed else 'a node'}"
        return True
    elif pod.metadata.uid in scheduler.queue.in_flight:
        explanation.queue = "in flight"
    return False


def _details(
    framework: Framework, plugins: Container[str], state: CycleState, pod: PodInfo, snapshot: Snapshot
) -> list[str]:
    """Return the details of those of `plugins` that give some."""
    return [
        line
        for plugin in framework.node_filters.filter
        if plugin.name in plugins and isinstance(plugin, ExplainPodPlugin)
        for line in plugin.explain_pod(state, pod, snapshot)
    ]


def _update_snapshot(scheduler: Scheduler) -> Iterator[None]:
    """Bring the snapshot up to date, unless a scheduling cycle is using it."""
    while not scheduler.awaits_call:
        if len(scheduler.cache.update_snapshot(scheduler.snapshot, at_most=_SNAPSHOT_SLICE)) < _SNAPSHOT_SLICE:
            return
        yield


def _last_attempt(pod: Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason != "SchedulingGated":
            return f"{condition.reason}: {condition.message}"
    return ""


def gating_message(scheduler: Scheduler, pod: Pod, queued: QueuedPodInfo) -> str:
    """Return the current message of the plugin that gates the pod; "" if it no longer does."""
    for plugin in scheduler.frameworks[pod.spec.scheduler_name].pre_enqueue:
        if plugin.name == queued.gating_plugin and (status := plugin.pre_enqueue(pod)) is not None:
            return status.message
    return ""


def _obstacles(framework: Framework, state: CycleState, pod: PodInfo, node: NodeInfo) -> list[Status]:
    """Return the rejections of all filters; if there are none, the rejection with the pods nominated to the node."""
    statuses = [
        status
        for plugin in framework.node_filters.filter
        if plugin.name not in state.skip_filter and (status := filter_node(plugin, state, pod, node)) is not None
    ]
    if not statuses:
        nominated = framework.node_filters.run_filters_with_nominated_pods(state, pod, node)
        return [nominated] if nominated is not None else []
    return statuses


def _fits_after_preemption(
    framework: Framework, state: CycleState, pod: PodInfo, node: NodeInfo, statuses: list[Status]
) -> bool:
    """Return True if the pod would fit without the pods of lower priority on the node."""
    if any(status.code is not Code.UNSCHEDULABLE for status in statuses):
        return False
    victims = [victim for victim in node.pods.values() if victim.priority < pod.priority]
    if not victims:
        return False
    node_copy, state_copy = node.clone(), state.clone()
    for victim in victims:
        node_copy.remove_pod(victim.uid)
        if framework.node_filters.run_remove_pod(state_copy, pod, victim, node_copy) is not None:
            return False
    return framework.node_filters.run_filters_on_node(state_copy, pod, node_copy) is None


def _add_shortages(shortages: dict[str, int], pod: PodInfo, node: NodeInfo, reasons: Container[str]) -> None:
    for name, amount in pod.requests.items():
        missing = amount - (node.allocatable.get(name, 0) - node.requested.get(name, 0))
        if missing > 0 and f"Insufficient {name}" in reasons:  # not if devices provide it
            shortages[name] = min(missing, shortages.get(name, missing))


def _summarize(
    explanation: PodExplanation,
    pod: Pod,
    infos: Sequence[NodeInfo],
    reasons: Counter[str],
    plugins: Counter[str],
    gates: FeatureGates,
) -> None:
    nodes = explanation.nodes
    fitting = [node.node for node in nodes if not node.obstacles]
    if fitting:
        group = pod_group_key(pod).partition("/")[2]
        then = (
            f"it is scheduled with its group: see kubeloop explain podgroup/{group}"
            if group and gates.enabled("GenericWorkload")
            else "its next attempt is due"
        )
        explanation.summary = f"the pod fits on {len(fitting)} of {len(nodes)} nodes now; {then}"
        return
    explanation.message = fit_error_message(len(nodes), reasons)
    explanation.summary = explanation.message
    # A resource is short only if no node has room for it.
    explanation.advice = advice([plugin for plugin, _ in plugins.most_common()], pod, infos, gates=gates)
    if "NodeResourcesFit" not in plugins:
        explanation.shortages.clear()
    helped = [node.node for node in nodes if node.preemption_helps]
    if pod.spec.preemption_policy == "Never":
        explanation.preemption = "the pod may not preempt others (preemptionPolicy: Never)"
    elif pod.status.nominated_node_name:
        explanation.preemption = (
            f"preemption is making room on {pod.status.nominated_node_name}, the pod's nominated node"
        )
    elif helped:
        explanation.preemption = f"preempting pods of lower priority would help on {len(helped)} of {len(nodes)} nodes"
    else:
        explanation.preemption = "preemption cannot help: no node would fit without its pods of lower priority"
