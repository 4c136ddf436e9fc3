"""Application of tail rules: which finished traces are exported although the sampler did not select them."""

from __future__ import annotations

from kubeloop.tracing.sampling.samplers import TailRules
from kubeloop.tracing.spans.pod_group_record import PodGroupAttempt, PodGroupRecord
from kubeloop.tracing.spans.pod_record import COMPLETE_OUTCOMES, ObservedPhase, Phase, PodRecord, SchedulingAttempt
from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.trace import Trace
from kubeloop.tracing.spans.traceparent import TraceContext

MAX_UNSAMPLED = 1_000


def matching_tail_rule(record: PodRecord, rules: TailRules) -> str:
    """Return the first rule that a finished record matches, "" if none does."""
    limit_seconds = rules.slower_than_seconds
    if limit_seconds is not None and record.duration_ns > limit_seconds * 1e9:
        return f"slower-than={limit_seconds:g}s"
    if rules.failed and (record.outcome not in COMPLETE_OUTCOMES or record.create_error or _has_failure(record)):
        return "failed"
    if rules.preempted and _has_preempted(record):
        return "preempted"
    return ""


def matching_group_tail_rule(record: PodGroupRecord, rules: TailRules) -> str:
    """Return the first rule that the finished record of a pod group matches, "" if none does."""
    limit_seconds = rules.slower_than_seconds
    attempts = [fact for fact in record.facts if isinstance(fact, PodGroupAttempt)]
    if limit_seconds is not None and record.duration_ns > limit_seconds * 1e9:
        return f"slower-than={limit_seconds:g}s"
    if rules.failed and (record.outcome != "bound" or any(attempt.has_failed for attempt in attempts)):
        return "failed"
    if rules.preempted and any(fact.facts is not None and fact.facts.result == "preempting" for fact in attempts):
        return "preempted"
    return ""


def _has_failure(record: PodRecord) -> bool:
    return any(
        (type(fact) is SchedulingAttempt and fact.result is not None and fact.result.result != "scheduled")
        or (isinstance(fact, (Phase, ObservedPhase)) and fact.error is not None)
        for fact in record.facts
    )


def _has_preempted(record: PodRecord) -> bool:
    return any(
        (type(fact) is SchedulingAttempt and fact.result is not None and fact.result.nominated_node)
        or (type(fact) is ObservedPhase and fact.name == "preemption wait")
        for fact in record.facts
    )


class UnsampledReconciles:
    """Reconciles that the sampler did not select, in case a tail rule selects a pod that is linked to one.

    At most MAX_UNSAMPLED of them, oldest dropped first.
    """

    def __init__(self) -> None:
        self._traces: dict[str, ReconcileRecord | Trace] = {}  # by the root's traceparent, oldest first
        self._linked: dict[str, None] = {}  # traceparents of unfinished reconciles with a linked pod, oldest first

    def add(self, trace: ReconcileRecord | Trace) -> None:
        self._traces[_traceparent(trace)] = trace
        if len(self._traces) > MAX_UNSAMPLED:
            del self._traces[next(iter(self._traces))]

    def take_linked(self, traceparent: str) -> ReconcileRecord | Trace | None:
        """Remove and return the reconcile that a selected pod is linked to.

        None: it was selected already, was dropped, or is unfinished; then pop_link() is True for it when it finishes.
        """
        trace = self._traces.pop(traceparent, None)
        if trace is None:
            self._linked[traceparent] = None
            if len(self._linked) > MAX_UNSAMPLED:
                del self._linked[next(iter(self._linked))]
        return trace

    def pop_link(self, trace: ReconcileRecord | Trace) -> bool:
        """Forget the link to a finished reconcile. Returns True if a selected pod is linked to it."""
        return bool(self._linked) and self._linked.pop(_traceparent(trace), "") is None


def _traceparent(trace: ReconcileRecord | Trace) -> str:
    return TraceContext(trace.trace_id, trace.root_id, False).traceparent
