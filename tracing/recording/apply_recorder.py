"""The trace of a request that somebody makes with kubeloop: `kubeloop up -f` applies, and its objects say so.

    apply                       the whole command
      apply                     one request for each object, whose reconciles are linked to it

May import `kubeloop.kube` and this room.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kubeloop.kube.clock import Clock
from kubeloop.tracing.sampling.samplers import Sampler
from kubeloop.tracing.spans.trace import Attributes, Span, Trace
from kubeloop.tracing.spans.traceparent import TraceContext, new_span_id, new_trace_id

MAX_OBJECTS = 1_000  # with a span of their own


class ApplyRecorder:
    """One apply under way. Begin and end each object's request, then finish()."""

    def __init__(
        self, *, clock: Clock, rng: random.Random, sampling: Sampler, finished: Callable[[Trace, bool], None]
    ) -> None:
        self._time_ns = clock.time_ns
        self._rng = rng
        self._finished = finished
        self._root: TraceContext | None = None
        self._begun: dict[str, int] = {}  # by traceparent
        self._spans: list[Span] = []
        self._objects = 0
        self._error: str | None = None  # the first
        self._start_ns = clock.time_ns()
        if sampling.starts_traces:
            trace_id = new_trace_id(rng)
            self._root = TraceContext(trace_id, new_span_id(rng), sampling.samples_root(trace_id))

    def begin(self) -> str:
        """Traceparent for a request that is sent now, and for the object it applies; "" without tracing."""
        if self._root is None:
            return ""
        context = TraceContext(self._root.trace_id, new_span_id(self._rng), self._root.sampled)
        self._begun[context.traceparent] = self._time_ns()
        return context.traceparent

    def end(self, traceparent: str, kind: str, namespace: str, name: str, outcome: str, error: str = "") -> None:
        """What begin() returned is answered."""
        start_ns = self._begun.pop(traceparent, 0)
        if self._root is None or not start_ns:
            return
        self._objects += 1
        self._error = self._error or error or None
        if len(self._spans) >= MAX_OBJECTS:
            return
        attributes: Attributes = {"kubeloop.kind": kind, "kubeloop.name": name, "kubeloop.outcome": outcome}
        if namespace:
            attributes["k8s.namespace.name"] = namespace
        self._spans.append(
            Span(
                name="apply",
                span_id=traceparent.split("-")[2],
                parent_span_id=self._root.span_id,
                start_ns=start_ns,
                end_ns=max(start_ns, self._time_ns()),
                attributes=attributes,
                error=error or None,
                kind="client",
            )
        )

    def finish(self) -> None:
        """All objects are applied, or one was refused."""
        if self._root is None or not self._objects:
            return
        root = Span(
            name="apply",
            span_id=self._root.span_id,
            start_ns=self._start_ns,
            end_ns=max([self._time_ns(), *(span.end_ns for span in self._spans)]),
            attributes={"kubeloop.objects": self._objects},
            error=self._error,
        )
        self._finished(Trace(self._root.trace_id, (root, *self._spans)), self._root.sampled)
