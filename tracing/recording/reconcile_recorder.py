"""Traces of reconciles: one span for each that changed something, with what it did and what it is linked to.

A reconcile that changed nothing, and logged nothing, costs an object and leaves nothing behind. May import
`kubeloop.kube` and this room.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kubeloop.kube.clock import Clock
from kubeloop.tracing.recording.current_span import current_span
from kubeloop.tracing.sampling.samplers import Sampler
from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.traceparent import TRACEPARENT_HEADER, TraceContext, new_span_id, new_trace_id

MAX_ACTIONS = 100  # named in a span; the rest is counted
MAX_LINKS = 128  # OTEL_SPAN_LINK_COUNT_LIMIT's default
MAX_CAUSES = 10_000  # objects written, of which no reconcile has heard yet


class Reconcile:
    """One reconcile under way. Make it with ReconcileTraces.reconcile, end it with finish(), once."""

    __slots__ = (
        "_action_count",
        "_actions",
        "_cause",
        "_children",
        "_context",
        "_links",
        "_logged",
        "_owner",
        "_start_ns",
        "_traceparent",
        "controller",
        "key",
        "reason",
    )

    def __init__(self, owner: ReconcileRecorder, controller: str, key: str, reason: str) -> None:
        self.controller, self.key, self.reason = controller, key, reason
        self._owner = owner
        self._start_ns = owner.now_ns()
        self._context: TraceContext | None = None  # made when first asked for: most reconciles change nothing
        self._traceparent = ""
        self._action_count = 0
        self._actions: list[str] = []
        self._children: list[tuple[str, int, int, str | None]] = []
        self._links: list[tuple[str, str]] = []
        self._logged = False
        self._cause = ""

    @property
    def traceparent(self) -> str:
        """For requests this reconcile makes, and for links to it; "" without tracing."""
        if self._context is None:
            self._context = self._owner._new_context()
            self._traceparent = self._context.traceparent if self._context else ""
        return self._traceparent

    @property
    def headers(self) -> dict[str, str] | None:
        """For requests that this reconcile makes."""
        traceparent = self.traceparent
        return {TRACEPARENT_HEADER: traceparent} if traceparent else None

    def log_context(self) -> str:
        """The ids for a log record; a reconcile that logged something is worth a trace."""
        self._logged = True
        return self.traceparent

    def add_action(self, action: str, *, start_ns: int | None = None, link: str = "", error: str | None = None) -> None:
        """Something was done, such as "create pod web-x2x7", or failed with `error`. With `start_ns`, a span of its own
        from then to now. `link`: traceparent of what it was done to."""
        if error is None:
            self._action_count += 1
            if len(self._actions) < MAX_ACTIONS:
                self._actions.append(action)
        if start_ns is not None and len(self._children) < MAX_ACTIONS:
            self._children.append((action, start_ns, self._owner.now_ns(), error))
        if link:
            self.link(link)

    @contextmanager
    def action_span(self, action: str) -> Iterator[None]:
        """note() what the body does, as done or, if it raises, as failed."""
        start_ns = self._owner.now_ns()
        try:
            yield
        except Exception as error:
            self.add_action(action, start_ns=start_ns, error=str(error))
            raise
        self.add_action(action, start_ns=start_ns)

    def link(self, traceparent: str, relation: str = "cause") -> None:
        """Join this reconcile's trace with another one: of the request that caused it, of a pod it created ("pod")."""
        if traceparent and len(self._links) < MAX_LINKS:
            link = traceparent, relation
            if relation == "pod" or link not in self._links[:4]:  # two causes may be one
                self._links.append(link)

    def will_trigger(self, controller: str, key: str) -> None:
        """It writes an object that is then `controller`'s to reconcile: the reconcile of `key` that answers to that is
        linked with this one. To be said before the write, whose event may arrive before its answer."""
        self._owner._note_cause(controller, key, self.traceparent)

    def finish(
        self, changed: bool | None = None, error: str | None = None, *, handled_cause: bool | None = None
    ) -> None:
        """It is over. Unless it changed something (or tried and failed), nothing is recorded.

        changed: None means, whether anything was noted that did not fail. answered: whether it answers to what
        another reconcile wrote (`will_trigger`); None means, if it changed anything.
        """
        current_span.set(None)
        if changed is None:
            changed = self._action_count > 0
        if self._cause and (changed if handled_cause is None else handled_cause):
            cause = self._cause, "cause"
            if cause not in self._links[:4]:
                self._links.insert(0, cause)
        elif self._cause:
            self._owner._not_answered(self.controller, self.key, self._cause)
        if not changed and error is None and not self._logged:
            return
        if self.traceparent and self._context is not None and self._owner._records(self._context):
            self._owner._hand_on(self, self._context, error)

    def _record(self, context: TraceContext, end_ns: int, error: str | None) -> ReconcileRecord:
        return ReconcileRecord(
            context,
            self.controller,
            self.key,
            self.reason,
            self._start_ns,
            end_ns,
            self._action_count,
            self._actions,
            self._children,
            self._links,
            error,
        )


class ReconcileRecorder:
    """Begins the traces of reconciles, and hands on those that changed something."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        sampling: Sampler = Sampler(),  # noqa: B008  # immutable
        finished: Callable[[ReconcileRecord, bool], None] = lambda record, sampled: None,
    ) -> None:
        """`finished` is given each reconcile with a trace when it ends, and whether the sampler chose it."""
        self._reconcile_clock = clock
        self._reconcile_rng = rng
        self._reconcile_sampling = sampling
        self._reconcile_finished = finished
        self._causes: dict[tuple[str, str], str] = {}  # traceparent by controller and key, oldest first

    def now_ns(self) -> int:
        return self._reconcile_clock.time_ns()

    def reconcile(self, controller: str, key: str, reason: str = "") -> Reconcile:
        """`controller`: the kind it reconciles, in lower case ("deployment"). `reason`: what woke it."""
        reconcile = Reconcile(self, controller, key, reason)
        if self._causes:
            reconcile._cause = self._causes.pop((controller, key), "")
        current_span.set(reconcile)
        return reconcile

    def _note_cause(self, controller: str, key: str, traceparent: str) -> None:
        if not traceparent:
            return
        self._causes.pop((controller, key), None)
        self._causes[controller, key] = traceparent
        if len(self._causes) > MAX_CAUSES:
            del self._causes[next(iter(self._causes))]

    def _not_answered(self, controller: str, key: str, traceparent: str) -> None:
        """The reconcile of `key` was about something else: its caches did not show that write yet."""
        self._causes.setdefault((controller, key), traceparent)

    def _records(self, context: TraceContext) -> bool:
        return self._reconcile_sampling.records(context.sampled)

    def _new_context(self) -> TraceContext | None:
        if not self._reconcile_sampling.starts_traces:
            return None
        trace_id = new_trace_id(self._reconcile_rng)
        return TraceContext(trace_id, new_span_id(self._reconcile_rng), self._reconcile_sampling.samples_root(trace_id))

    def _hand_on(self, reconcile: Reconcile, context: TraceContext, error: str | None) -> None:
        self._reconcile_finished(reconcile._record(context, self.now_ns(), error), context.sampled)
