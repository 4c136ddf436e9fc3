"""Recorder of reconciles: one trace per reconcile that changed or logged something, with its actions and links.

A reconcile that changed and logged nothing costs one object and is not recorded.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from kubeloop.kube.client.current_span import current_span
from kubeloop.kube.clock import Clock
from kubeloop.tracing.sampling.samplers import Sampler
from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION, TraceContext

MAX_ACTIONS = 100  # listed in a span; further ones are only counted
MAX_LINKS = 128  # OTEL_SPAN_LINK_COUNT_LIMIT's default
MAX_CAUSES = 10_000  # objects whose last write is remembered, before its reconcile and after


class Reconcile:
    """One reconcile in progress. Create it with ReconcileRecorder.reconcile; call finish() once.

    As a context manager it calls finish() at the end, with the error if there is one; not if it was cancelled.
    handled_cause: whether it handles the write of another reconcile (`will_trigger`); None: if it changed something.
    """

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
        "handled_cause",
        "key",
        "kind",
        "reason",
    )

    def __init__(self, owner: ReconcileRecorder, controller: str, key: str, reason: str, kind: str) -> None:
        self.controller, self.key, self.reason, self.kind = controller, key, reason, kind
        self._owner = owner
        self._start_ns = owner.now_ns()
        self._context: TraceContext | None = None  # created on demand: most reconciles change nothing
        self._traceparent = ""
        self._action_count = 0
        self._actions: list[str] = []
        self._children: list[tuple[str, int, int, str | None]] = []
        self._links: list[tuple[str, str]] = []
        self._logged = False
        self._cause = ""
        self.handled_cause: bool | None = None

    def __enter__(self) -> Reconcile:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self.finish()
        elif isinstance(error, Exception):
            self.finish(error=str(error))
        else:
            current_span.set(None)

    @property
    def traceparent(self) -> str:
        """Traceparent for requests of this reconcile and for links to it; "" without tracing."""
        if self._context is None:
            self._context = self._owner._new_context()
            self._traceparent = self._context.traceparent if self._context else ""
        return self._traceparent

    def annotated(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return an object to create, with the traceparent as annotation if annotations are requested and it has
        none."""
        if not self._owner.annotates or not self.traceparent:
            return body
        metadata = body["metadata"]
        annotations = {TRACEPARENT_ANNOTATION: self.traceparent, **(metadata.get("annotations") or {})}
        return {**body, "metadata": {**metadata, "annotations": annotations}}

    def log_context(self) -> str:
        """Return the traceparent for a log record. A reconcile that logs something is recorded."""
        self._logged = True
        return self.traceparent

    def add_action(self, action: str, *, start_ns: int | None = None, link: str = "", error: str | None = None) -> None:
        """Record an action, such as "create pod web-x2x7"; `error` if it failed.

        With `start_ns`, the action gets a span from then to now. `link`: traceparent of the object it acted on.
        """
        if error is None:
            self._action_count += 1
            if len(self._actions) < MAX_ACTIONS:
                self._actions.append(action)
        if start_ns is not None and len(self._children) < MAX_ACTIONS:
            self._children.append((action, start_ns, self._owner.now_ns(), error))
        if link:
            self.link(link)

    def action_span(self, action: str) -> AbstractContextManager[None]:
        """Record the body as an action with a span; as failed if the body raises."""
        return _ActionSpan(self, action, self._owner.now_ns())

    def link(self, traceparent: str, relation: str = "cause") -> None:
        """Link this reconcile to another span: of the request that caused it, or of a pod it created ("pod")."""
        if traceparent and len(self._links) < MAX_LINKS:
            link = traceparent, relation
            if relation == "pod" or link not in self._links[:4]:  # two causes may be the same
                self._links.append(link)

    def will_trigger(self, controller: str, key: str) -> None:
        """Announce a write to an object that `controller` reconciles: the reconciles of `key` link to this one.

        Call it before the write, because the watch event may arrive before the response.
        """
        self._owner.add_cause(controller, key, self.traceparent)

    def will_not_trigger(self, controller: str, key: str) -> None:
        """Withdraw an announced write that changed nothing."""
        self._owner.remove_cause(controller, key, self.traceparent)

    def finish(self, changed: bool | None = None, error: str | None = None) -> None:
        """End the reconcile. It is recorded only if it changed something, failed or logged something.

        changed: None for True if an action without an error was recorded.
        """
        current_span.set(None)
        if changed is None:
            changed = self._action_count > 0
        handled = changed if self.handled_cause is None else self.handled_cause
        if self._cause:
            self._owner._keep_cause(self.controller, self.key, self._cause, handled=handled)
        if not changed and error is None and not self._logged:
            return
        cause = self._cause if handled and self._cause else self._owner._handled_cause(self.controller, self.key)
        if cause and (cause, "cause") not in self._links[:4]:
            self._links.insert(0, (cause, "cause"))
        if self.traceparent and self._context is not None and self._owner._records(self._context):
            self._owner._pass_on(self, self._context, error)

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
            self.kind,
        )


class _ActionSpan(AbstractContextManager[None]):
    __slots__ = ("_action", "_reconcile", "_start_ns")

    def __init__(self, reconcile: Reconcile, action: str, start_ns: int) -> None:
        self._reconcile, self._action, self._start_ns = reconcile, action, start_ns

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            self._reconcile.add_action(self._action, start_ns=self._start_ns)
        elif isinstance(error, Exception):  # not a cancellation
            self._reconcile.add_action(self._action, start_ns=self._start_ns, error=str(error))


class ReconcileRecorder:
    """Starts traces of reconciles and passes on those that changed something."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        sampler: Sampler = Sampler(),  # noqa: B008  # immutable
        annotates: bool = False,
        on_finished: Callable[[ReconcileRecord, bool], None] = lambda record, sampled: None,
    ) -> None:
        """`annotates`: created objects get the trace context of their reconcile as an annotation, for other processes.
        `on_finished` receives each finished reconcile that has a trace, and whether the sampler selected it.
        """
        self.annotates = annotates
        self._clock = clock
        self._rng = rng
        self._sampler = sampler
        self._on_finished = on_finished
        # Traceparent of the last write by controller and key, oldest first; of one that no reconcile has handled yet:
        self._causes: dict[tuple[str, str], str] = {}
        self._handled_causes: dict[tuple[str, str], str] = {}

    def now_ns(self) -> int:
        return self._clock.time_ns()

    def reconcile(self, controller: str, key: str, reason: str = "", kind: str = "") -> Reconcile:
        """`controller`: its name, mostly the reconciled kind in lower case ("deployment"). `reason`: event that
        triggered the reconcile. `kind`: reconciled kind in lower case, if the name is another one."""
        reconcile = Reconcile(self, controller, key, reason, kind)
        if self._causes:
            reconcile._cause = self._causes.pop((controller, key), "")
        current_span.set(reconcile)
        return reconcile

    def add_cause(self, controller: str, key: str, traceparent: str) -> None:
        """Announce a write to an object that `controller` reconciles: the reconciles of `key` link to its span."""
        if traceparent:
            _put(self._causes, (controller, key), traceparent)

    def remove_cause(self, controller: str, key: str, traceparent: str) -> None:
        """Withdraw an announced write that changed nothing."""
        if self._causes.get((controller, key)) == traceparent:
            del self._causes[controller, key]

    def forget(self, controller: str, key: str) -> None:
        """Drop the handled write to an object that was deleted; a write that is pending may create it again."""
        self._handled_causes.pop((controller, key), None)

    def _keep_cause(self, controller: str, key: str, traceparent: str, *, handled: bool) -> None:
        """Keep the cause for later reconciles of `key`; if not `handled`, the caches did not show the write yet."""
        if handled:
            _put(self._handled_causes, (controller, key), traceparent)
        else:
            self._causes.setdefault((controller, key), traceparent)

    def _handled_cause(self, controller: str, key: str) -> str:
        return self._handled_causes.get((controller, key), "")

    def _records(self, context: TraceContext) -> bool:
        return self._sampler.records(context.sampled)

    def _new_context(self) -> TraceContext | None:
        if not self._sampler.starts_traces:
            return None
        return self._sampler.root_context(self._rng)

    def _pass_on(self, reconcile: Reconcile, context: TraceContext, error: str | None) -> None:
        self._on_finished(reconcile._record(context, self.now_ns(), error), context.sampled)


def _put(causes: dict[tuple[str, str], str], key: tuple[str, str], traceparent: str) -> None:
    causes.pop(key, None)
    causes[key] = traceparent
    if len(causes) > MAX_CAUSES:
        del causes[next(iter(causes))]
