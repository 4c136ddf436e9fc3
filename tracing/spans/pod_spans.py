"""Spans of a pod's trace, built from its record (docs/tracing.md, "The trace of a pod").

The spans form one tree, every child lies within its parent's time, and the children of the root cover the root's time,
also when facts are missing or late: a gap without facts becomes a span that is derived from the facts around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from kubeloop.tracing.spans.pod_record import (
    COMPLETE_OUTCOMES,
    START_PHASES,
    AttemptFacts,
    Gap,
    ObservedPhase,
    Phase,
    PodRecord,
    SchedulingAttempt,
    Wait,
    timeline,
)
from kubeloop.tracing.spans.trace import Attributes, Link, Span, SpanEvent, Trace, span_ids

_GAP_SHARE = 0.002  # part of a pod's time that may stay without a span, in gaps too short for one

_SCHEDULER_STEPS = frozenset(
    ("scheduling attempt", "pre-filter", "filter", "post-filter", "score", "reserve", "permit", "pre-bind", "bind")
)

MAX_SCORES = 5  # best nodes in a span of scoring

_OWNER_ATTRIBUTES = {
    "ReplicaSet": "k8s.replicaset.name",
    "ReplicationController": "k8s.replicationcontroller.name",
    "StatefulSet": "k8s.statefulset.name",
    "DaemonSet": "k8s.daemonset.name",
    "Deployment": "k8s.deployment.name",
    "Job": "k8s.job.name",
    "CronJob": "k8s.cronjob.name",
}


def _add_edge(attributes: Attributes, edge: str, source: str, uncertainty_ns: int) -> None:
    """Add where the time of an edge comes from, and its uncertainty in milliseconds, rounded up."""
    if source:
        attributes[f"kubeloop.{edge}.source"] = source
        if uncertainty_ns:
            attributes[f"kubeloop.{edge}.uncertainty_ms"] = -(-uncertainty_ns // 1_000_000)


def pod_trace(record: PodRecord, *, now_ns: int = 0) -> Trace:
    """Build the spans of a record. The spans of an open record end at `now_ns`."""
    return _SpanBuilder(record, record.end_ns or now_ns).trace()


class _SpanBuilder:
    """Builds the spans of one record."""

    def __init__(self, record: PodRecord, end_ns: int) -> None:
        self._record = record
        self._root_id = record.span_id
        self._ids: Iterator[str] = span_ids(self._root_id)
        self._start_ns = record.start_ns
        self._end_ns = max(record.start_ns, end_ns)
        self._spans: list[Span] = []
        self._covered: list[tuple[int, int]] = []  # start and end of the root's children
        self._attempts = 0

    def trace(self) -> Trace:
        record = self._record
        self._add_creation()
        self._add_facts()
        if record.bound_ns and record.until_ready and not record.is_observed:
            self._add_start_phases()
        self._fill_gaps()
        root = self._root()
        if record.plugin_spans:
            self._add_plugin_spans(root)
        return Trace(record.trace_id, (root, *self._spans))

    def _root(self) -> Span:
        record = self._record
        owner = record.owner_kind, record.owner_name
        top_owner = record.top_owner_kind, record.top_owner_name
        owners = (owner, ("Deployment", record.deployment_name), top_owner)
        attributes: Attributes = {
            "k8s.namespace.name": record.namespace,
            "k8s.pod.name": record.name,
            "k8s.pod.uid": record.uid,
            **{_OWNER_ATTRIBUTES[kind]: name for kind, name in owners if kind in _OWNER_ATTRIBUTES},
            "kubeloop.pod_group.name": record.group_name,
            "k8s.node.name": record.node,
            "kubeloop.outcome": record.outcome or "open",
        }
        if record.top_owner_kind or owner[0] not in _OWNER_ATTRIBUTES:
            attributes["kubeloop.owner.kind"], attributes["kubeloop.owner.name"] = (
                top_owner if record.top_owner_kind else owner
            )
        if record.is_observed:
            attributes["kubeloop.observed"] = True
        if record.reconstructed:
            attributes["kubeloop.reconstructed"] = True
        elif not record.is_observed:
            attributes["kubeloop.attempts"] = self._attempts
        if record.continued_ns:
            attributes["kubeloop.continued"] = True
            attributes["kubeloop.continued_after_ms"] = max(0, record.continued_ns - self._start_ns) // 1_000_000
        attributes |= {"kubeloop.sampled_by": record.tail_rule, "kubeloop.reason": record.reason}
        failed = bool(record.outcome) and record.outcome not in COMPLETE_OUTCOMES
        if record.is_observed:
            _add_edge(attributes, "start", "creation", record.start_uncertainty_ns)
            _add_edge(attributes, "end", record.end_source, record.end_uncertainty_ns)
        return Span(
            name="pod",
            span_id=self._root_id,
            parent_span_id=record.parent_span_id,
            start_ns=self._start_ns,
            end_ns=self._end_ns,
            attributes={name: value for name, value in attributes.items() if value != ""},
            links=self._links(),
            error=record.reason or record.outcome if failed else None,
        )

    def _links(self) -> tuple[Link, ...]:
        record = self._record
        links = (Link(record.link, "cause" if record.is_observed else "reconcile"),) if record.link else ()
        return (*links, Link(record.group_link, "pod group")) if record.group_link else links

    def _add(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        attributes: Attributes | None = None,
        *,
        error: str | None = None,
        kind: Literal["internal", "client", "consumer"] = "internal",
        events: tuple[SpanEvent, ...] = (),
    ) -> Span:
        """Add a child of the root, clamped to the root's time."""
        # no min() and max(): this is most of the cost of building a trace
        lowest, highest = self._start_ns, self._end_ns
        start_ns = lowest if start_ns < lowest else highest if start_ns > highest else start_ns
        end_ns = start_ns if end_ns < start_ns else highest if end_ns > highest else end_ns
        span = Span(name, next(self._ids), start_ns, end_ns, self._root_id, attributes or {}, (), events, error, kind)
        self._spans.append(span)
        self._covered.append((start_ns, end_ns))
        return span

    def _add_step(
        self, attempt: Span, name: str, start_ns: int, end_ns: int, attributes: Attributes | None = None
    ) -> None:
        """Add a child of a scheduling attempt, clamped to its time."""
        lowest, highest = attempt.start_ns, attempt.end_ns
        start_ns = lowest if start_ns < lowest else highest if start_ns > highest else start_ns
        end_ns = start_ns if end_ns < start_ns else highest if end_ns > highest else end_ns
        self._spans.append(Span(name, next(self._ids), start_ns, end_ns, attempt.span_id, attributes or {}))

    def _add_creation(self) -> None:
        record = self._record
        if record.create_start_ns:
            end_ns = record.create_end_ns or record.observed_ns or self._end_ns
            request: Attributes = {"http.request.method": "POST", "kubeloop.resource": "pods"}
            error = record.create_error or None
            self._add("create", record.create_start_ns, end_ns, request, error=error, kind="client")
        if not record.observed_ns:
            return
        if record.continued_ns and not record.create_end_ns:
            self._add_not_followed(self._start_ns, record.observed_ns, "followed by an earlier kubeloop process")
        else:
            # The watch event may arrive before the response to the create request; its latency is then unknown.
            start_ns = min(record.create_end_ns or self._start_ns, record.observed_ns)
            self._add("watch delivery", start_ns, record.observed_ns, kind="consumer")

    def _add_facts(self) -> None:
        record = self._record
        bind_finished_ns = 0
        for fact, end_ns, woken_by in timeline(record, self._end_ns):
            if type(fact) is Wait:
                self._add_wait(fact, end_ns, woken_by)
            elif type(fact) is Phase:
                self._add_phase(fact, end_ns)
                if fact.name == "bind" and fact.error is None:
                    bind_finished_ns = fact.end_ns
            elif type(fact) is SchedulingAttempt:
                self._add_attempt(fact, end_ns)
            elif type(fact) is ObservedPhase:
                self._add_observed(fact, end_ns)
            elif type(fact) is Gap:
                name = "not recorded" if fact.dropped else "not followed"
                self._add(name, fact.start_ns, end_ns, {"kubeloop.reason": fact.reason})
        if bind_finished_ns and record.bound_ns:
            self._add("confirmation", bind_finished_ns, record.bound_ns, kind="consumer")

    def _add_not_followed(self, start_ns: int, end_ns: int, reason: str) -> None:
        self._add("not followed", start_ns, end_ns, {"kubeloop.reason": reason})

    def _add_wait(self, wait: Wait, end_ns: int, woken_by: str) -> None:
        attributes: Attributes = {"kubeloop.reason": wait.reason} if wait.reason else {}
        if woken_by:
            attributes["kubeloop.woken_by"] = woken_by
        self._add(wait.span_name, wait.start_ns, end_ns, attributes)

    def _add_phase(self, phase: Phase, end_ns: int) -> None:
        attributes: Attributes = {"k8s.node.name": phase.node} if phase.node else {}
        if phase.name != "bind":
            self._add(phase.name, phase.start_ns, end_ns, attributes, error=phase.error)
            return
        attributes |= {"http.request.method": "POST", "kubeloop.resource": "pods/binding"}
        self._add("bind", phase.start_ns, end_ns, attributes, error=phase.error, kind="client")

    def _add_observed(self, phase: ObservedPhase, end_ns: int) -> None:
        attributes: Attributes = {**phase.attributes}
        _add_edge(attributes, "start", phase.start_source, phase.start_uncertainty_ns)
        _add_edge(attributes, "end", phase.end_source if phase.end_ns else "", phase.end_uncertainty_ns)
        self._add(phase.name, phase.start_ns, end_ns, attributes, error=phase.error, kind="consumer")

    def _add_attempt(self, attempt: SchedulingAttempt, end_ns: int) -> None:
        self._attempts += 1
        start_ns, facts = attempt.start_ns, attempt.result
        attributes: Attributes = {"kubeloop.attempt": attempt.number}
        if facts is None:
            self._add("scheduling attempt", start_ns, end_ns, attributes)
            return
        attributes["kubeloop.result"] = facts.result
        if facts.node:
            attributes["k8s.node.name"] = facts.node
        if facts.message:
            attributes["kubeloop.message"] = facts.message
        if facts.nominated_node:
            attributes["kubeloop.nominated_node"] = facts.nominated_node
        attributes.update(facts.attributes)
        error = None if facts.result == "scheduled" else facts.message or facts.result
        events = self._attempt_events(facts, end_ns) if error is not None else ()
        span = self._add("scheduling attempt", start_ns, end_ns, attributes, error=error, events=events)
        first_step_ns = facts.pre_filter_start_ns if facts.pre_filter_end_ns else facts.filter_start_ns
        if first_step_ns > span.start_ns:
            self._add_step(span, "snapshot", span.start_ns, first_step_ns)
        if facts.pre_filter_end_ns:
            self._add_step(span, "pre-filter", facts.pre_filter_start_ns, facts.pre_filter_end_ns)
        # The attributes are recorded also if the filters were not timed.
        nodes: Attributes = {"kubeloop.nodes": facts.nodes, "kubeloop.feasible_nodes": facts.feasible}
        rejections = facts.rejections or {}
        for plugin, count in rejections.items():
            nodes[f"kubeloop.rejected.{plugin}"] = count
        if facts.filter_end_ns:
            self._add_step(span, "filter", facts.filter_start_ns, facts.filter_end_ns, nodes)
        elif facts.nodes:
            self._add_step(span, "filter", span.start_ns, span.start_ns, nodes)
        if facts.post_filter_end_ns:
            preemption: Attributes = {"kubeloop.victims": facts.victims}
            if facts.nominated_node:
                preemption["kubeloop.nominated_node"] = facts.nominated_node
            self._add_step(span, "post-filter", facts.post_filter_start_ns, facts.post_filter_end_ns, preemption)
        if facts.score_end_ns:
            scores: Attributes = {
                "kubeloop.nodes": facts.feasible,
                "kubeloop.score.nodes": [*facts.best_nodes[:MAX_SCORES]],
                "kubeloop.score.totals": [*facts.best_totals[:MAX_SCORES]],
            }
            self._add_step(span, "score", facts.score_start_ns, facts.score_end_ns, scores)

    def _attempt_events(self, facts: AttemptFacts, end_ns: int) -> tuple[SpanEvent, ...]:
        rejected_ns = min(max(facts.filter_end_ns or end_ns, self._start_ns), self._end_ns)
        events = [
            SpanEvent("rejected", rejected_ns, {"kubeloop.plugin": plugin, "kubeloop.nodes": count})
            for plugin, count in (facts.rejections or {}).items()
        ]
        if facts.nominated_node:
            about: Attributes = {"kubeloop.nominated_node": facts.nominated_node, "kubeloop.victims": facts.victims}
            time_ns = facts.post_filter_end_ns or rejected_ns
            events.append(SpanEvent("preempting", min(max(time_ns, self._start_ns), self._end_ns), about))
        return tuple(events)

    def _add_start_phases(self) -> None:
        """Add the spans of the pod's start on its node, one per condition that the kubelet sets."""
        record = self._record
        since_ns, conditions_ns = record.bound_ns, record.conditions_ns or {}
        if self._end_ns <= since_ns:
            return
        next_phase = START_PHASES[0]
        for number, (condition, name) in enumerate(START_PHASES):
            time_ns = conditions_ns.get(condition)
            if time_ns is not None:
                until_ns = max(since_ns, time_ns)
                self._add(name, since_ns, until_ns, {"kubeloop.condition": condition}, kind="consumer")
                since_ns = until_ns
                next_phase = START_PHASES[min(number + 1, len(START_PHASES) - 1)]
        if self._end_ns > since_ns:
            condition, name = next_phase
            self._add(name, since_ns, self._end_ns, {"kubeloop.condition": condition}, kind="consumer")

    def _add_plugin_spans(self, root: Span) -> None:
        """Add the spans of scheduler plugins, clamped to the time of their parents.

        The parent is another span of a plugin, or else the step of the scheduler in which the span was started.
        """
        steps = [step for step in self._spans if step.name in _SCHEDULER_STEPS]
        added: dict[str, Span] = {}
        # Parents come before their children, which end first, also if both start at the same time.
        plugin_spans = [*reversed(self._record.plugin_spans)]
        plugin_spans.sort(key=lambda span: span.start_ns)
        for span in plugin_spans:
            parent = added.get(span.parent_span_id) or root
            if parent is root:
                around = [step for step in steps if step.start_ns <= span.start_ns <= step.end_ns]
                contains = [step for step in around if span.end_ns <= step.end_ns]
                parent = max(contains or around, key=lambda step: (step.start_ns, -step.end_ns), default=root)
            start_ns = min(max(span.start_ns, parent.start_ns), parent.end_ns)
            end_ns = min(max(span.end_ns, start_ns), parent.end_ns)
            added[span.span_id] = msgspec.structs.replace(
                span, parent_span_id=parent.span_id, start_ns=start_ns, end_ns=end_ns
            )
        self._spans += added.values()

    def _fill_gaps(self) -> None:
        """Add spans for gaps that no fact explains.

        All work of this process runs on one event loop. In a gap between two steps of a pod, where the second was due
        when the first ended, the loop was busy with other pods.
        """
        record = self._record
        if record.reconstructed and not record.is_observed:
            return
        total_ns = self._end_ns - self._start_ns
        short_ns = total_ns * _GAP_SHARE / (len(self._covered) + 1)
        until_ns = self._start_ns
        for start_ns, end_ns in (*sorted(self._covered), (self._end_ns, self._end_ns)):
            if start_ns - until_ns > short_ns:
                self._add_gap(until_ns, start_ns)
            until_ns = max(until_ns, end_ns)

    def _add_gap(self, start_ns: int, end_ns: int) -> None:
        record = self._record
        if record.is_observed:
            self._add("not observed", start_ns, end_ns, {"kubeloop.reason": "no state or Event shows this time"})
        elif not record.observed_ns and not record.create_error:
            self._add("watch delivery", start_ns, end_ns, kind="consumer")
        elif record.create_error:
            self._add_not_followed(start_ns, end_ns, "the create request failed, but the pod may exist")
        elif record.scheduler:
            self._add("other scheduler", start_ns, end_ns, {"kubeloop.scheduler": record.scheduler})
        elif start_ns < record.observed_ns:
            self._add_not_followed(start_ns, end_ns, "not yet observed")
        else:
            self._add("event loop", start_ns, end_ns)
