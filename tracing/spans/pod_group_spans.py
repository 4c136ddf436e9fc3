"""Spans of a pod group's trace, built from its record (docs/tracing.md, "The trace of a pod group").

The children of the root follow each other without gaps: a wait, an attempt, or the binding of the pods.
"""

from __future__ import annotations

from typing import Literal

from kubeloop.tracing.spans.pod_group_record import PodGroupAttempt, PodGroupRecord
from kubeloop.tracing.spans.pod_record import Gap
from kubeloop.tracing.spans.trace import Attributes, Link, Span, SpanEvent, Trace, span_ids

ROOT = "pod group"


def pod_group_trace(record: PodGroupRecord, *, now_ns: int = 0) -> Trace:
    """Build the spans of a record. The spans of an open record end at `now_ns`, or when its last pod was bound."""
    return _SpanBuilder(record, record.end_ns or record.complete_ns or now_ns).trace()


class _SpanBuilder:
    def __init__(self, record: PodGroupRecord, end_ns: int) -> None:
        self._record = record
        self._root_id = record.context.span_id
        self._ids = span_ids(record.context.span_id)
        self._start_ns = record.start_ns
        self._end_ns = max(record.start_ns, end_ns)
        self._until_ns = record.start_ns  # end of the last child of the root
        self._spans: list[Span] = []
        self._events: list[SpanEvent] = []

    def trace(self) -> Trace:
        record = self._record
        self._add_quorum()
        reason = ""
        previous: PodGroupAttempt | None = None
        for fact in record.facts:
            if previous is not None:
                reason = self._add_binding(previous, fact.start_ns)
            if fact.start_ns > self._until_ns:
                self._add("group wait", fact.start_ns, {"kubeloop.reason": reason} if reason else {})
            previous = None
            if isinstance(fact, Gap):
                name = "not recorded" if fact.dropped else "not followed"
                self._add(name, fact.end_ns, {"kubeloop.reason": fact.reason})
            else:
                previous = fact
                self._add_attempt(fact)
        if previous is not None:
            reason = self._add_binding(previous, self._end_ns)
        if self._end_ns > self._until_ns:
            self._add("group wait", self._end_ns, {"kubeloop.reason": reason} if reason else {})
        return Trace(record.context.trace_id, (self._root(), *self._spans))

    def _root(self) -> Span:
        record = self._record
        attributes: Attributes = {
            "k8s.namespace.name": record.namespace,
            "kubeloop.pod_group.name": record.name,
            "kubeloop.pod_group.uid": record.uid,
            "kubeloop.pod_group.workload": record.workload,
            "kubeloop.pod_group.outcome": record.outcome or ("bound" if record.complete_ns else "open"),
            "kubeloop.pod_group.pods": record.pods,
            "kubeloop.pod_group.bound_pods": record.bound_pods,
            "kubeloop.attempts": record.attempts,
            "kubeloop.reason": record.reason,
            "kubeloop.sampled_by": record.tail_rule,
        }
        if record.min_count:
            attributes["kubeloop.pod_group.min_count"] = record.min_count
        if record.continued_ns:
            attributes["kubeloop.continued"] = True
        self._events.sort(key=lambda event: event.time_ns)
        return Span(
            name=ROOT,
            span_id=self._root_id,
            start_ns=self._start_ns,
            end_ns=self._end_ns,
            attributes={name: value for name, value in attributes.items() if value != ""},
            links=tuple(Link(traceparent, "pod") for traceparent in record.pod_links),
            events=tuple(self._events),
            error=record.reason or record.outcome if record.outcome == "deleted" else None,
        )

    def _within(self, time_ns: int) -> int:
        return min(max(time_ns, self._until_ns), self._end_ns)

    def _add(
        self,
        name: str,
        end_ns: int,
        attributes: Attributes,
        *,
        error: str | None = None,
        events: tuple[SpanEvent, ...] = (),
        kind: Literal["internal", "client"] = "internal",
    ) -> Span:
        """Add a child of the root from the end of the last one until `end_ns`."""
        start_ns, end_ns = self._until_ns, self._within(end_ns)
        span = Span(name, next(self._ids), start_ns, end_ns, self._root_id, attributes, (), events, error, kind)
        self._spans.append(span)
        self._until_ns = end_ns
        return span

    def _event(self, name: str, time_ns: int, attributes: Attributes) -> None:
        self._events.append(SpanEvent(name, min(max(time_ns, self._start_ns), self._end_ns), attributes))

    def _add_quorum(self) -> None:
        """Add the time in which fewer than minCount pods existed."""
        record = self._record
        if not record.min_count:
            return
        count: Attributes = {"kubeloop.pod_group.min_count": record.min_count}
        if record.quorum_ns:
            self._event("quorum reached", record.quorum_ns, count)
        end_ns = record.quorum_ns or (record.facts[0].start_ns if record.facts else self._end_ns)
        if end_ns > self._start_ns:
            self._add("quorum wait", end_ns, count)

    def _add_attempt(self, attempt: PodGroupAttempt) -> None:
        attributes: Attributes = {"kubeloop.attempt": attempt.number}
        facts = attempt.facts
        if facts is None:
            self._add("group attempt", attempt.end_ns or self._end_ns, attributes)
            return
        attributes |= {
            "kubeloop.result": facts.result,
            "kubeloop.pods": facts.pods,
            "kubeloop.scheduled_pods": facts.scheduled_pods,
        }
        if facts.placement_count:
            attributes["kubeloop.placements"] = facts.placement_count
        if facts.placement:
            attributes["kubeloop.placement"] = facts.placement
        if facts.message:
            attributes["kubeloop.message"] = facts.message
        if facts.victims:
            attributes["kubeloop.victims"] = facts.victims
        failed = facts.result != "scheduled"
        span = self._add(
            "group attempt", attempt.end_ns, attributes, error=facts.message or facts.result if failed else None
        )
        if not failed:
            details: Attributes = {"kubeloop.scheduled_pods": facts.scheduled_pods}
            if facts.placement:
                details["kubeloop.placement"] = facts.placement
            self._event("placement found", span.end_ns, details)
        elif facts.result == "preempting":
            self._event("preempting", span.end_ns, {"kubeloop.victims": facts.victims})
        for placement in facts.placements:
            start_ns = min(max(placement.start_ns, span.start_ns), span.end_ns)
            self._spans.append(
                Span(
                    "placement",
                    next(self._ids),
                    start_ns,
                    min(max(placement.end_ns, start_ns), span.end_ns),
                    span.span_id,
                    {"kubeloop.placement": placement.name, "kubeloop.feasible_pods": placement.feasible_pods},
                    error=placement.message or None,
                )
            )

    def _add_binding(self, attempt: PodGroupAttempt, limit_ns: int) -> str:
        """Add permit and binding after a successful attempt, until `limit_ns` at most.

        Returns why pods wait after that; "" if the attempt has the reason.
        """
        facts = attempt.facts
        if facts is None:
            return ""
        if facts.result != "scheduled":
            return "preempted pods have not ended" if facts.result == "preempting" else ""
        if attempt.permit_start_ns:
            error = attempt.permit_error if attempt.permit_rejections else None
            rejected: Attributes = {"kubeloop.rejected_pods": attempt.permit_rejections} if error is not None else {}
            end_ns = min(attempt.permit_end_ns or limit_ns, limit_ns)
            if error is not None:
                self._event("permit rejected", end_ns, {**rejected, "kubeloop.message": error})
            self._add("permit", end_ns, rejected, error=error)
        bound: Attributes = {"kubeloop.bound_pods": attempt.bound_pods}
        is_binding = attempt.bound_pods + attempt.permit_rejections < facts.scheduled_pods
        end_ns = limit_ns if is_binding else min(attempt.bound_ns or self._until_ns, limit_ns)
        if end_ns > self._until_ns or attempt.bound_pods:
            self._add("group binding", end_ns, bound, kind="client")
        if attempt.bound_ns and not is_binding:
            self._event("last pod bound", attempt.bound_ns, bound)
        return attempt.permit_error or "other pods of the group have not been scheduled"
