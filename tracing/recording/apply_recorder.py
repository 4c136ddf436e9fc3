"""Trace of the apply requests of one kubeloop command, such as `kubeloop up -f`.

apply                       the whole command
  apply                     one request per object; the object's reconciles link to it
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kubeloop.kube.client.current_span import current_span
from kubeloop.kube.clock import Clock
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from kubeloop.tracing.sampling.samplers import Sampler
from kubeloop.tracing.spans.trace import Attributes, Span, Trace
from kubeloop.tracing.spans.traceparent import TraceContext, new_span_id

MAX_OBJECTS = 1_000  # that get a span


class ApplyRecorder:
    """One apply command in progress. Call begin() and end() for each object's request, then finish()."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        sampler: Sampler,
        reconciles: ReconcileRecorder,
        on_finished: Callable[[Trace, bool], None],
    ) -> None:
        """reconciles: those that follow from the requests in this process; they link to them."""
        self._reconciles = reconciles
        self._time_ns = clock.time_ns
        self._rng = rng
        self._on_finished = on_finished
        self._root: TraceContext | None = None
        self._started: dict[str, tuple[int, str, str]] = {}  # start (ns), controller and key by traceparent
        self._spans: list[Span] = []
        self._objects = 0
        self._error: str | None = None  # the first
        self._start_ns = clock.time_ns()
        if sampler.starts_traces:
            self._root = sampler.root_context(rng)

    @property
    def annotates(self) -> bool:
        """True if workloads get the traceparent as an annotation, for the reconciles of other processes."""
        return self._reconciles.annotates

    def begin(self, controller: str = "", key: str = "") -> str:
        """Start the span of an object's requests, which are sent by the running task. Returns its traceparent; ""
        without tracing.

        controller, key: those of the reconciles that follow, if the object is a workload.
        """
        if self._root is None:
            return ""
        context = TraceContext(self._root.trace_id, new_span_id(self._rng), self._root.sampled)
        self._started[context.traceparent] = self._time_ns(), controller, key
        if key:
            self._reconciles.add_cause(controller, key, context.traceparent)
        current_span.set(context)
        return context.traceparent

    def end(self, traceparent: str, kind: str, namespace: str, name: str, outcome: str, error: str = "") -> None:
        """Record the end of the object's requests."""
        current_span.set(None)
        start_ns, controller, key = self._started.pop(traceparent, (0, "", ""))
        if self._root is None or not start_ns:
            return
        if outcome in ("unchanged", "refused"):
            self._reconciles.remove_cause(controller, key, traceparent)
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
        self._on_finished(Trace(self._root.trace_id, (root, *self._spans)), self._root.sampled)
