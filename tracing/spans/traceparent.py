"""Trace context as it travels: the W3C traceparent, on requests as a header and on pods as an annotation (KEP-5915).

May import msgspec, the standard library and `kubeloop.kube` only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

import msgspec

TRACEPARENT_ANNOTATION = "tracing.k8s.io/traceparent"
TRACEPARENT_HEADER = "traceparent"
POD_TRACE_ANNOTATION = (
    "kubeloop.io/pod-trace"  # says that the span in TRACEPARENT_ANNOTATION is the pod's own: see RootNote
)

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?").fullmatch
_NO_TRACE = "0" * 32
NO_SPAN = "0" * 16


class TraceContext(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One span, as others refer to it. Ids in lower-case hexadecimal."""

    trace_id: str
    span_id: str
    sampled: bool

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


def parse_traceparent(text: str) -> TraceContext | None:
    """The context in a traceparent, None if it is not one. A version of the future is read as far as 00 goes.

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
    """What a process leaves on a pod about its trace, for the process that comes after it.

    start_ns        when the create request was sent
    parent_span_id  of the root: somebody else's, "" for none
    link            traceparent of the reconcile
    by_creator      the trace is ended by the process that creates such pods, since it knows no scheduler of kubeloop's
    """

    start_ns: int
    parent_span_id: str = ""
    link: str = ""
    by_creator: bool = False

    def __str__(self) -> str:
        parent = f";parent={self.parent_span_id}" if self.parent_span_id else ""
        link = f";link={self.link}" if self.link else ""
        return f"{self.start_ns}{parent}{link}{';by=creator' if self.by_creator else ''}"


def parse_pod_trace_annotation(text: str) -> PodTraceAnnotation | None:
    """What str(RootNote) wrote; None for anything else."""
    start, *others = text.split(";")
    fields = dict(other.partition("=")[::2] for other in others)
    if not start.isdecimal() or len(start) > 19:
        return None
    return PodTraceAnnotation(
        int(start), fields.get("parent", ""), fields.get("link", ""), fields.get("by") == "creator"
    )


def new_trace_id(rng: random.Random) -> str:
    return f"{rng.getrandbits(128) or 1:032x}"


def new_span_id(rng: random.Random) -> str:
    return f"{rng.getrandbits(64) or 1:016x}"


def request_headers(traceparent: str) -> Mapping[str, str]:
    """Headers that hand the context on with a request; none for ""."""
    return {TRACEPARENT_HEADER: traceparent} if traceparent else {}
