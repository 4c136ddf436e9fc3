"""What was noted about one pod, and the tree of spans that it makes.

    pod                                   create request .. seen bound (or deleted, or given up)
      create                              request and answer
      watch delivery                      created .. first seen
      queue active|backoff|...            each wait, with its reason
      scheduling attempt N
        pre-filter, filter, post-filter, score
      reserve, permit, pre-bind, bind
      confirmation                        bind answer .. seen bound

Whatever is missing or late, the tree is one, and every child lies within its parent's time. May import `kubeloop.kube`
and this room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from kubeloop.kube.objects import Pod
from kubeloop.tracing.context import TraceContext
from kubeloop.tracing.spans import Attributes, Span, Trace, span_ids

QUEUED, ATTEMPT_STARTED, ATTEMPT_FINISHED, PHASE_STARTED, PHASE_FINISHED, GAP = range(6)

Fact = tuple[int, int, Any, Any]
"""What, when (ns), and two details: queue and reason; attempt number; AttemptFacts; phase and node; phase and error."""

MAX_FACTS = 600  # some 100 attempts; a pod that waits for weeks keeps its first and its last ones
_FIRST_FACTS = 200
_DROPPED_FACTS = 200

MAX_SCORES = 5  # of the winners, in a span

_OWNER_ATTRIBUTES = {
    "ReplicaSet": "k8s.replicaset.name",
    "ReplicationController": "k8s.replicationcontroller.name",
    "StatefulSet": "k8s.statefulset.name",
    "DaemonSet": "k8s.daemonset.name",
    "Job": "k8s.job.name",
}


@dataclass(slots=True)
class AttemptFacts:
    """What one scheduling attempt came to. Pairs of ns are start and end; None: that step did not run.

    nodes, feasible   nodes looked at, and those that passed the filters
    rejections        number of nodes that a plugin rejected, by plugin
    scores            (node, total), best first; only the first few are kept in the trace
    node              chosen; "" if none
    message           why not, as in the FailedScheduling event
    nominated_node    where preemption makes room
    """

    result: Literal["scheduled", "unschedulable", "error"]
    nodes: int = 0
    feasible: int = 0
    rejections: dict[str, int] = field(default_factory=dict)
    scores: list[tuple[str, int]] = field(default_factory=list)
    pre_filter_ns: tuple[int, int] | None = None
    filter_ns: tuple[int, int] | None = None
    post_filter_ns: tuple[int, int] | None = None
    score_ns: tuple[int, int] | None = None
    node: str = ""
    message: str = ""
    nominated_node: str = ""


class PodRecord:
    """Notes about one pod. Times in ns since the epoch, 0: not known, or not yet."""

    __slots__ = (
        "bind_in_flight",
        "bound_ns",
        "context",
        "continued_ns",
        "create_end_ns",
        "create_error",
        "create_start_ns",
        "end_ns",
        "facts",
        "link",
        "name",
        "namespace",
        "node",
        "observed_ns",
        "outcome",
        "owner_kind",
        "owner_name",
        "parent_span_id",
        "reason",
        "reconstructed",
        "start_ns",
        "template_hash",
        "uid",
    )

    def __init__(self, context: TraceContext, start_ns: int) -> None:
        self.context = context  # of the root span
        self.parent_span_id = ""  # of the root span: somebody else's, who created the pod
        self.link = ""
        self.namespace = self.name = self.uid = self.node = ""
        self.owner_kind = self.owner_name = self.template_hash = ""
        self.start_ns = start_ns
        self.create_start_ns = self.create_end_ns = 0
        self.create_error = ""
        self.continued_ns = 0  # when this process took the trace over from one before it
        self.observed_ns = self.bound_ns = self.end_ns = 0
        self.bind_in_flight = False
        self.outcome = ""  # "bound", "deleted", "create failed" or "given up"; "" while it is open
        self.reason = ""  # of any outcome but "bound"
        self.reconstructed = False  # from what stands on the object, not from what was seen
        self.facts: list[Fact] = []  # in the order in which they were noted

    def add(self, fact: Fact) -> None:
        facts = self.facts
        facts.append(fact)
        if len(facts) > MAX_FACTS:
            gap_at_ns = facts[_FIRST_FACTS][1]
            facts[_FIRST_FACTS : _FIRST_FACTS + _DROPPED_FACTS] = [(GAP, gap_at_ns, None, None)]

    def describe(self, pod: Pod) -> None:
        metadata = pod.metadata
        self.namespace, self.name, self.uid = metadata.namespace, metadata.name, metadata.uid
        self.template_hash = metadata.labels.get("pod-template-hash", "")
        for owner in metadata.owner_references:
            if owner.controller:
                self.owner_kind, self.owner_name = owner.kind, owner.name

    def finish(self, outcome: str, end_ns: int, reason: str = "") -> None:
        self.outcome, self.end_ns, self.reason = outcome, end_ns, reason

    @property
    def deployment_name(self) -> str:
        """Of the Deployment above the ReplicaSet, "" if there is none. Told from the name and the hash in it."""
        suffix = f"-{self.template_hash}"
        if self.owner_kind == "ReplicaSet" and self.template_hash and self.owner_name.endswith(suffix):
            return self.owner_name.removesuffix(suffix)
        return ""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


def pod_trace(record: PodRecord, *, salt: int, now_ns: int) -> Trace:
    """The spans of a record. One that is still open is drawn up to `now_ns`. `salt`: see span_ids."""
    return _Tree(record, salt, record.end_ns or now_ns).trace()


class _Tree:
    """The spans of one record, while they are put together."""

    def __init__(self, record: PodRecord, salt: int, end_ns: int) -> None:
        self._record = record
        self._root_id = record.context.span_id
        self._ids: Iterator[str] = span_ids(record.context, salt)
        self._start_ns = record.start_ns
        self._end_ns = max(record.start_ns, end_ns)
        self._spans: list[Span] = []
        self._attempts = 0

    def trace(self) -> Trace:
        record = self._record
        self._creation()
        self._facts()
        spans = (self._root(), *self._spans)
        return Trace(record.context.trace_id, spans)

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
        if record.reason:
            attributes["kubeloop.reason"] = record.reason
        return Span(
            name=f"pod {record.namespace}/{record.name or record.owner_name}",
            span_id=self._root_id,
            parent_span_id=record.parent_span_id,
            start_ns=self._start_ns,
            end_ns=self._end_ns,
            attributes={name: value for name, value in attributes.items() if value != ""},
            links=(record.link,) if record.link else (),
            error=record.reason or record.outcome if record.outcome not in ("", "bound") else None,
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
        parent: Span | None = None,
    ) -> Span:
        """A span within its parent's time, whatever the times say."""
        parent_id = parent.span_id if parent else self._root_id
        lowest = parent.start_ns if parent else self._start_ns
        highest = parent.end_ns if parent else self._end_ns
        start_ns = min(max(start_ns, lowest), highest)
        span = Span(
            name=name,
            span_id=next(self._ids),
            parent_span_id=parent_id,
            start_ns=start_ns,
            end_ns=min(max(end_ns, start_ns), highest),
            attributes=attributes or {},
            error=error,
            kind=kind,
        )
        self._spans.append(span)
        return span

    def _creation(self) -> None:
        record = self._record
        if record.create_start_ns:
            end_ns = record.create_end_ns or record.observed_ns or self._end_ns
            request: Attributes = {"http.request.method": "POST", "kubeloop.resource": "pods"}
            error = record.create_error or None
            self._add("create", record.create_start_ns, end_ns, request, error=error, kind="client")
        if record.observed_ns:
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
            if what in (QUEUED, ATTEMPT_STARTED, GAP) and wait is not None:
                self._wait(wait, at_ns)
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
                self._add("not kept", at_ns, at_ns, {"kubeloop.reason": "only the first and last attempts are kept"})
        if wait is not None:
            self._wait(wait, self._end_ns)
        if attempt is not None:
            self._attempt(attempt, self._end_ns, None)
        for started in phases.values():
            self._phase(started, self._end_ns, None)
        if bound_by_us_ns and record.bound_ns:
            self._add("confirmation", bound_by_us_ns, record.bound_ns, kind="consumer")

    def _wait(self, wait: Fact, end_ns: int) -> None:
        _, start_ns, queue, reason = wait
        self._add(f"queue {queue}", start_ns, end_ns, {"kubeloop.reason": reason} if reason else None)

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
            self._add(f"scheduling attempt {number}", start_ns, end_ns, attributes)
            return
        attributes["kubeloop.result"] = facts.result
        if facts.node:
            attributes["k8s.node.name"] = facts.node
        if facts.message:
            attributes["kubeloop.message"] = facts.message
        if facts.nominated_node:
            attributes["kubeloop.nominated_node"] = facts.nominated_node
        error = None if facts.result == "scheduled" else facts.message or facts.result
        span = self._add(f"scheduling attempt {number}", start_ns, end_ns, attributes, error=error)
        if facts.pre_filter_ns:
            self._add("pre-filter", *facts.pre_filter_ns, parent=span)
        # Where nobody measured the filters, they still have something to say.
        nodes: Attributes = {"kubeloop.nodes": facts.nodes, "kubeloop.feasible_nodes": facts.feasible}
        nodes |= {f"kubeloop.rejected.{plugin}": count for plugin, count in facts.rejections.items()}
        if facts.filter_ns:
            self._add("filter", *facts.filter_ns, nodes, parent=span)
        elif facts.nodes:
            self._add("filter", span.start_ns, span.start_ns, nodes, parent=span)
        if facts.post_filter_ns:
            self._add("post-filter", *facts.post_filter_ns, parent=span)
        if facts.score_ns:
            best = facts.scores[:MAX_SCORES]
            scores: Attributes = {
                "kubeloop.nodes": facts.feasible,
                "kubeloop.score.nodes": [node for node, _ in best],
                "kubeloop.score.totals": [total for _, total in best],
            }
            self._add("score", *facts.score_ns, scores, parent=span)
