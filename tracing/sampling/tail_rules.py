"""Tail rules applied: what is kept, when it has ended, although the sampler did not choose it.

May import this room only.
"""

from __future__ import annotations

from kubeloop.tracing.sampling.samplers import TailRules
from kubeloop.tracing.spans.pod_record import (
    ATTEMPT_FINISHED,
    COMPLETE_OUTCOMES,
    PHASE_FINISHED,
    AttemptFacts,
    PodRecord,
)
from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.trace import Trace
from kubeloop.tracing.spans.traceparent import TraceContext

MAX_UNSAMPLED = 1_000


def matching_tail_rule(record: PodRecord, rules: TailRules) -> str:
    """The first rule that a finished record meets, "" if none."""
    slower = rules.slower_than_seconds
    if slower is not None and record.duration_ns > slower * 1e9:
        return f"slower-than={slower:g}s"
    if rules.failed and (record.outcome not in COMPLETE_OUTCOMES or record.create_error or _has_failure(record)):
        return "failed"
    if rules.preempted and any(isinstance(fact[2], AttemptFacts) and fact[2].nominated_node for fact in record.facts):
        return "preempted"
    return ""


def _has_failure(record: PodRecord) -> bool:
    for what, _, first, second in record.facts:
        if what == ATTEMPT_FINISHED and first.result != "scheduled":
            return True
        if what == PHASE_FINISHED and second is not None:
            return True
    return False


class UnsampledReconciles:
    """Reconciles that the sampler did not choose, for as long as a pod that is kept may want its own."""

    def __init__(self) -> None:
        self._traces: dict[str, ReconcileRecord | Trace] = {}  # by the root's traceparent, oldest first
        self._wanted: dict[str, None] = {}  # traceparents of those that go on, oldest first

    def add(self, trace: ReconcileRecord | Trace) -> None:
        self._traces[_traceparent(trace)] = trace
        if len(self._traces) > MAX_UNSAMPLED:
            del self._traces[next(iter(self._traces))]

    def wanted(self, traceparent: str) -> ReconcileRecord | Trace | None:
        """The reconcile that a kept pod is linked to; None: it was kept already, or goes on, or is forgotten."""
        trace = self._traces.pop(traceparent, None)
        if trace is None:
            self._wanted[traceparent] = None
            if len(self._wanted) > MAX_UNSAMPLED:
                del self._wanted[next(iter(self._wanted))]
        return trace

    def is_wanted(self, trace: ReconcileRecord | Trace) -> bool:
        return bool(self._wanted) and self._wanted.pop(_traceparent(trace), "") is None


def _traceparent(trace: ReconcileRecord | Trace) -> str:
    return TraceContext(trace.trace_id, trace.root_id, False).traceparent
