"""Record of a finished reconcile, and the spans of its trace."""

from __future__ import annotations

import msgspec

from kubeloop.tracing.spans.trace import Attributes, Link, Span, Trace, span_ids
from kubeloop.tracing.spans.traceparent import TraceContext

_NAME_ATTRIBUTES = {
    "cronjob": "k8s.cronjob.name",
    "daemonset": "k8s.daemonset.name",
    "deployment": "k8s.deployment.name",
    "job": "k8s.job.name",
    "namespace": "k8s.namespace.name",
    "replicaset": "k8s.replicaset.name",
    "replicationmanager": "k8s.replicationcontroller.name",
    "statefulset": "k8s.statefulset.name",
}
"""OpenTelemetry's attribute for the name of the object, by controller."""


class ReconcileRecord(msgspec.Struct, gc=False, array_like=True):
    """Record of a finished reconcile. Spans are built from it on demand.

    actions    descriptions of the actions, at most MAX_ACTIONS of action_count
    children   (action, start, end, error) of each action with a duration
    links      (traceparent, relation)
    kind       kind of the reconciled object in lower case, "" if the controller is named after it
    """

    context: TraceContext
    controller: str
    key: str
    reason: str
    start_ns: int
    end_ns: int
    action_count: int
    actions: list[str]
    children: list[tuple[str, int, int, str | None]]
    links: list[tuple[str, str]]
    error: str | None
    kind: str = ""

    @property
    def trace_id(self) -> str:
        return self.context.trace_id

    @property
    def root_id(self) -> str:
        return self.context.span_id

    def trace(self) -> Trace:
        context = self.context
        namespace, _, name = self.key.rpartition("/")
        attributes: Attributes = {"kubeloop.controller": self.controller, "kubeloop.key": self.key}
        if namespace:
            attributes["k8s.namespace.name"] = namespace
        if self.kind:
            attributes[f"k8s.{self.kind}.name"] = name
        elif self.controller in _NAME_ATTRIBUTES:
            attributes[_NAME_ATTRIBUTES[self.controller]] = name
        if self.reason:
            attributes["kubeloop.reason"] = self.reason
        if self.actions:
            attributes["kubeloop.actions"] = self.actions
            attributes["kubeloop.action_count"] = self.action_count
        end_ns = max(self.end_ns, self.start_ns)
        root = Span(
            name=f"reconcile {self.controller}",
            span_id=context.span_id,
            start_ns=self.start_ns,
            end_ns=end_ns,
            attributes=attributes,
            links=tuple(Link(traceparent, relation) for traceparent, relation in self.links),
            error=self.error,
        )
        ids = span_ids(context.span_id)
        children = [
            Span(
                name=_verb_and_kind(action),
                span_id=next(ids),
                parent_span_id=root.span_id,
                start_ns=min(max(start_ns, self.start_ns), end_ns),
                end_ns=min(max(done_ns, start_ns, self.start_ns), end_ns),
                attributes={"kubeloop.action": action},
                error=child_error,
                kind="client",
            )
            for action, start_ns, done_ns, child_error in self.children
        ]
        return Trace(context.trace_id, (root, *children))


def _verb_and_kind(action: str) -> str:
    """Return the first two words of an action ("create pod web-x2x7"): span names need low cardinality."""
    return " ".join(action.split(" ", 2)[:2])
