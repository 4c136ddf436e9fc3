"""The spans of a pod's trace, built from its record (docs/tracing.md, "The trace of a pod").

The spans always form one tree, every child lies within its parent's time, and the children of the root cover its time,
whatever facts are missing or late: a stretch that no fact explains is explained by the facts around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from kubeloop.tracing.spans.pod_record import (
    ATTEMPT_FINISHED,
    ATTEMPT_STARTED,
    COMPLETE_OUTCOMES,
    GAP,
    PHASE_FINISHED,
    PHASE_STARTED,
    QUEUED,
    START_PHASES,
    TERMINATING,
    UNFOLLOWED,
    AttemptFacts,
    Fact,
    PodRecord,
)
from kubeloop.tracing.spans.trace import Attributes, Link, Span, SpanEvent, Trace, span_ids

_UNEXPLAINED_SHARE = 0.002  # of a pod's time may be left over, in stretches too short to be worth a span

MAX_SCORES = 5  # of the winners, in a span

_OWNER_ATTRIBUTES = {
    "ReplicaSet": "k8s.replicaset.name",
    "ReplicationController": "k8s.replicationcontroller.name",
    "StatefulSet": "k8s.statefulset.name",
    "DaemonSet": "k8s.daemonset.name",
    "Job": "k8s.job.name",
}


def pod_trace(record: PodRecord, *, now_ns: int = 0) -> Trace:
    """The spans of a record. One that is still open is drawn up to `now_ns`."""
    return _Tree(record, record.end_ns or now_ns).trace()


class _Tree:
    """The spans of one record, while they are put together."""

    def __init__(self, record: PodRecord, end_ns: int) -> None:
        self._record = record
        self._root_id = record.context.span_id
        self._ids: Iterator[str] = span_ids(record.context)
        self._start_ns = record.start_ns
        self._end_ns = max(record.start_ns, end_ns)
        self._spans: list[Span] = []
        self._explained: list[tuple[int, int]] = []  # start and end of the root's children
        self._attempts = 0

    def trace(self) -> Trace:
        record = self._record
        self._creation()
        self._facts()
        if record.bound_ns and record.until_ready:
            self._start()
        self._fill()
        return Trace(record.context.trace_id, (self._root(), *self._spans))

    def _root(self) -> Span:
        record = self._record
        attributes: Attributes = {
            "k8s.namespace.name": record.namespace,
            "k8s.pod.name": record.name,
            "k8s.pod.uid": record.uid,
        }
        if record.owner_kind in _OWNER_ATTRIBUTES:
            attributes[_OWNER_ATTRIBUTES[record.owner_kind]] = record.owner_name
        if record.deployment_name:
            attributes["k8s.deployment.name"] = record.deployment_name
        if record.node:
            attributes["k8s.node.name"] = record.node
        attributes["kubeloop.outcome"] = record.outcome or "on its way"
        if record.reconstructed:
            attributes["kubeloop.reconstructed"] = True
        else:
            attributes["kubeloop.attempts"] = self._attempts
        if record.continued_ns:
            attributes["kubeloop.continued"] = True
            attributes["kubeloop.continued_after_ms"] = max(0, record.continued_ns - self._start_ns) // 1_000_000
        if record.tail_rule:
            attributes["kubeloop.kept_by"] = record.tail_rule
        if record.reason:
            attributes["kubeloop.reason"] = record.reason
        failed = bool(record.outcome) and record.outcome not in COMPLETE_OUTCOMES
        return Span(
            name="pod",
            span_id=self._root_id,
            parent_span_id=record.parent_span_id,
            start_ns=self._start_ns,
            end_ns=self._end_ns,
            attributes={name: value for name, value in attributes.items() if value != ""},
            links=(Link(record.link, "reconcile"),) if record.link else (),
            error=record.reason or record.outcome if failed else None,
        )

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
        parent: Span | None = None,
    ) -> Span:
        """A span within its parent's time, whatever the times say."""
        if parent is None:
            parent_id, lowest, highest = self._root_id, self._start_ns, self._end_ns
        else:
            parent_id, lowest, highest = parent.span_id, parent.start_ns, parent.end_ns
        # no min() and max(): this is most of what making a trace costs
        start_ns = lowest if start_ns < lowest else highest if start_ns > highest else start_ns
        end_ns = start_ns if end_ns < start_ns else highest if end_ns > highest else end_ns
        span = Span(
            name,
            next(self._ids),
            start_ns,
            end_ns,
            parent_id,
            attributes or {},
            (),
            events,
            error,
            kind,
        )
        self._spans.append(span)
        if parent is None:
            self._explained.append((start_ns, end_ns))
        return span

    def _creation(self) -> None:
        record = self._record
        if record.create_start_ns:
            end_ns = record.create_end_ns or record.observed_ns or self._end_ns
            request: Attributes = {"http.request.method": "POST", "kubeloop.resource": "pods"}
            error = record.create_error or None
            self._add("create", record.create_start_ns, end_ns, request, error=error, kind="client")
        if not record.observed_ns:
            return
        if record.continued_ns and not record.create_end_ns:
            self._unfollowed(self._start_ns, record.observed_ns, "by a process of kubeloop that is gone")
        else:
            # The watch may be faster than the answer; then nothing is known of how long it took.
            start_ns = min(record.create_end_ns or self._start_ns, record.observed_ns)
            self._add("watch delivery", start_ns, record.observed_ns, kind="consumer")

    def _facts(self) -> None:
        record = self._record
        wait: Fact | None = None
        attempt: Fact | None = None
        phases: dict[str, Fact] = {}
        bound_by_us_ns = 0
        for fact in record.facts:
            what, at_ns, first, second = fact
            if what in (QUEUED, ATTEMPT_STARTED, GAP, UNFOLLOWED) and wait is not None:
                self._wait(wait, at_ns, second if what == QUEUED and first != TERMINATING else "")
                wait = None
            if what == QUEUED:
                wait = fact
            elif what == ATTEMPT_STARTED:
                if attempt is not None:
                    self._attempt(attempt, at_ns, None)
                attempt = fact
            elif what == ATTEMPT_FINISHED:
                if attempt is not None:
                    self._attempt(attempt, at_ns, first)
                attempt = None
            elif what == PHASE_STARTED:
                phases[first] = fact
            elif what == PHASE_FINISHED:
                started = phases.pop(first, None)
                if started is not None:
                    self._phase(started, at_ns, second)
                if first == "bind" and second is None:
                    bound_by_us_ns = at_ns
            elif what == GAP:
                attempt = None
                phases.clear()
                self._not_kept(at_ns)
            elif what == UNFOLLOWED:
                if attempt is not None:
                    self._attempt(attempt, at_ns, None)
                    attempt = None
                for started in phases.values():
                    self._phase(started, at_ns, None)
                phases.clear()
                self._unfollowed(at_ns, first, second)
        end_ns = record.bound_ns or self._end_ns
        if wait is not None:
            self._wait(wait, end_ns, "")
        if attempt is not None:
            self._attempt(attempt, end_ns, None)
        for started in phases.values():
            self._phase(started, end_ns, None)
        if bound_by_us_ns and record.bound_ns:
            self._add("confirmation", bound_by_us_ns, record.bound_ns, kind="consumer")

    def _not_kept(self, at_ns: int) -> None:
        """Up to the first fact that was kept again."""
        until_ns = next((fact[1] for fact in self._record.facts if fact[1] > at_ns and fact[0] != GAP), at_ns)
        reason: Attributes = {"kubeloop.reason": "only the first and last attempts are kept"}
        self._add("not kept", at_ns, until_ns, reason)

    def _unfollowed(self, start_ns: int, end_ns: int, reason: str) -> None:
        self._add("not followed", start_ns, end_ns, {"kubeloop.reason": reason})

    def _wait(self, wait: Fact, end_ns: int, woken_by: str) -> None:
        _, start_ns, queue, reason = wait
        attributes: Attributes = {"kubeloop.reason": reason} if reason else {}
        if woken_by:
            attributes["kubeloop.woken_by"] = woken_by
        self._add(queue if queue == TERMINATING else f"queue {queue}", start_ns, end_ns, attributes)

    def _phase(self, started: Fact, end_ns: int, error: str | None) -> None:
        _, start_ns, phase, node = started
        attributes: Attributes = {"k8s.node.name": node} if node else {}
        if phase == "bind":
            attributes |= {"http.request.method": "POST", "kubeloop.resource": "pods/binding"}
        self._add(phase, start_ns, end_ns, attributes, error=error, kind="client" if phase == "bind" else "internal")

    def _attempt(self, started: Fact, end_ns: int, facts: AttemptFacts | None) -> None:
        _, start_ns, number, _ = started
        self._attempts += 1
        attributes: Attributes = {"kubeloop.attempt": number}
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
        error = None if facts.result == "scheduled" else facts.message or facts.result
        events = self._attempt_events(facts, end_ns) if error is not None else ()
        span = self._add("scheduling attempt", start_ns, end_ns, attributes, error=error, events=events)
        steps = [step for step in (facts.pre_filter_ns, facts.filter_ns) if step is not None]
        if steps and steps[0][0] > span.start_ns:
            self._add("snapshot", span.start_ns, steps[0][0], parent=span)
        if facts.pre_filter_ns:
            self._add("pre-filter", *facts.pre_filter_ns, parent=span)
        # Where nobody measured the filters, they still have something to say.
        nodes: Attributes = {"kubeloop.nodes": facts.nodes, "kubeloop.feasible_nodes": facts.feasible}
        for plugin, count in facts.rejections.items():
            nodes[f"kubeloop.rejected.{plugin}"] = count
        if facts.filter_ns:
            self._add("filter", *facts.filter_ns, nodes, parent=span)
        elif facts.nodes:
            self._add("filter", span.start_ns, span.start_ns, nodes, parent=span)
        if facts.post_filter_ns:
            found: Attributes = {"kubeloop.victims": facts.victims}
            if facts.nominated_node:
                found["kubeloop.nominated_node"] = facts.nominated_node
            self._add("post-filter", *facts.post_filter_ns, found, parent=span)
        if facts.score_ns:
            best = facts.scores[:MAX_SCORES]
            scores: Attributes = {
                "kubeloop.nodes": facts.feasible,
                "kubeloop.score.nodes": [node for node, _ in best],
                "kubeloop.score.totals": [total for _, total in best],
            }
            self._add("score", *facts.score_ns, scores, parent=span)

    def _attempt_events(self, facts: AttemptFacts, end_ns: int) -> tuple[SpanEvent, ...]:
        rejected_ns = facts.filter_ns[1] if facts.filter_ns else end_ns
        rejected_ns = min(max(rejected_ns, self._start_ns), self._end_ns)
        events = [
            SpanEvent("rejected", rejected_ns, {"kubeloop.plugin": plugin, "kubeloop.nodes": count})
            for plugin, count in facts.rejections.items()
        ]
        if facts.nominated_node:
            about: Attributes = {"kubeloop.nominated_node": facts.nominated_node, "kubeloop.victims": facts.victims}
            at_ns = facts.post_filter_ns[1] if facts.post_filter_ns else rejected_ns
            events.append(SpanEvent("preempting", min(max(at_ns, self._start_ns), self._end_ns), about))
        return tuple(events)

    def _start(self) -> None:
        """On its node: what the kubelet does, one condition after the other."""
        record = self._record
        since_ns = record.bound_ns
        if self._end_ns <= since_ns:
            return
        waited_for = START_PHASES[0]
        for number, (condition, name) in enumerate(START_PHASES):
            at_ns = record.conditions_ns.get(condition)
            if at_ns is not None:
                until_ns = max(since_ns, at_ns)
                self._add(name, since_ns, until_ns, {"kubeloop.condition": condition}, kind="consumer")
                since_ns = until_ns
                waited_for = START_PHASES[min(number + 1, len(START_PHASES) - 1)]
        if self._end_ns > since_ns:
            condition, name = waited_for
            self._add(name, since_ns, self._end_ns, {"kubeloop.condition": condition}, kind="consumer")

    def _fill(self) -> None:
        """Spans for stretches that no note explains.

        All that happens in this process happens on one event loop: between two steps of a pod, of which the second was
        due when the first ended, the loop was busy with other pods.
        """
        record = self._record
        if record.reconstructed:
            return
        whole_ns = self._end_ns - self._start_ns
        short_ns = whole_ns * _UNEXPLAINED_SHARE / (len(self._explained) + 1)
        until_ns = self._start_ns
        for start_ns, end_ns in (*sorted(self._explained), (self._end_ns, self._end_ns)):
            if start_ns - until_ns > short_ns:
                self._explain(until_ns, start_ns)
            until_ns = max(until_ns, end_ns)

    def _explain(self, start_ns: int, end_ns: int) -> None:
        record = self._record
        if not record.observed_ns and not record.create_error:
            self._add("watch delivery", start_ns, end_ns, kind="consumer")
        elif record.create_error:
            self._unfollowed(start_ns, end_ns, "the pod might have been created all the same")
        elif record.scheduler:
            self._add("other scheduler", start_ns, end_ns, {"kubeloop.scheduler": record.scheduler})
        elif start_ns < record.observed_ns:
            self._unfollowed(start_ns, end_ns, "not seen yet")
        else:
            self._add("event loop", start_ns, end_ns)
