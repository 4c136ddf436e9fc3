"""W3C trace context (traceparent), and the annotations of pods that carry it (KEP-5915).

Imports msgspec and the standard library only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

import msgspec

TRACEPARENT_ANNOTATION = "tracing.k8s.io/traceparent"
POD_TRACE_ANNOTATION = "kubeloop.dev/pod-trace"
"""Marks the span in TRACEPARENT_ANNOTATION as the pod's own root span. Value: PodTraceAnnotation.

A pod without it has its own root span there, too, if the trace ID begins with the time of the create request.
"""
FORMER_POD_TRACE_ANNOTATION = "kubeloop.io/pod-trace"
"""Name before 0.2: still read, on pods that an earlier version created."""

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?").fullmatch
_NO_TRACE = "0" * 32
_MAX_CREATE_NS = 600 * 10**9  # from the create request to creationTimestamp: retries, webhooks, and two clocks
NO_SPAN = "0" * 16
SAMPLED = "-01"
"""End of the traceparents of this process whose trace the sampler has selected; the others end with -00."""


class TraceContext(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Reference to one span. IDs are in lower-case hexadecimal."""

    trace_id: str
    span_id: str
    sampled: bool

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}{SAMPLED if self.sampled else '-00'}"

    def log_context(self) -> str:
        """Return "": log records do not refer to spans that this process does not record."""
        return ""


def parse_traceparent(text: str) -> TraceContext | None:
    """Parse a traceparent; None if it is invalid. Of a version after 00, only the fields of version 00 are read.

    Source: https://www.w3.org/TR/trace-context/#traceparent-header
    """
    match = _TRACEPARENT(text)
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest) or trace_id == _NO_TRACE or span_id == NO_SPAN:
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1))


class PodTraceAnnotation(msgspec.Struct, frozen=True, gc=False):
    """Value of the annotation kubeloop.dev/pod-trace: lets a later process continue the pod's trace.

    start_ns        when the create request was sent
    parent_span_id  parent of the root span, in the trace of another service; "" for none
    link            traceparent of the reconcile
    by_creator      the process that creates the pod ends the trace, because no scheduler of kubeloop schedules the pod
    """

    start_ns: int
    parent_span_id: str = ""
    link: str = ""
    by_creator: bool = False

    def __str__(self) -> str:
        parent = f";parent={self.parent_span_id}" if self.parent_span_id else ""
        link = f";link={self.link}" if self.link else ""
        return f"{self.start_ns}{parent}{link}{';by=creator' if self.by_creator else ''}"


def own_root_span(
    annotations: Mapping[str, str], context: TraceContext, creation_ns: int | None
) -> PodTraceAnnotation | None:
    """Return what is known of the span in TRACEPARENT_ANNOTATION, `context`, if it is the pod's own root span.

    It is, if the pod has a valid POD_TRACE_ANNOTATION (or one of the former name), or if the first 64 bits of the trace
    ID are a time close to creationTimestamp, in nanoseconds. Otherwise it is a span of another service: returns None.
    """
    text = annotations.get(POD_TRACE_ANNOTATION) or annotations.get(FORMER_POD_TRACE_ANNOTATION)
    if text is not None and (annotation := parse_pod_trace_annotation(text)) is not None:
        return annotation
    start_ns = int(context.trace_id[:16], 16)
    if creation_ns is None or abs(creation_ns - start_ns) > _MAX_CREATE_NS:
        return None
    return PodTraceAnnotation(start_ns)


def parse_pod_trace_annotation(text: str) -> PodTraceAnnotation | None:
    """Parse str(PodTraceAnnotation); None if the text is invalid."""
    start, *fields_text = text.split(";")
    fields = dict(field.partition("=")[::2] for field in fields_text)
    if not start.isdecimal() or len(start) > 19:
        return None
    return PodTraceAnnotation(
        int(start), fields.get("parent", ""), fields.get("link", ""), fields.get("by") == "creator"
    )


def new_span_id(rng: random.Random) -> str:
    return f"{rng.getrandbits(64) or 1:016x}"
