"""Trace context as it travels: the W3C traceparent, on requests as a header and on pods as an annotation (KEP-5915).

May import the standard library and `kubeloop.kube` only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

TRACEPARENT_ANNOTATION = "tracing.k8s.io/traceparent"
TRACEPARENT_HEADER = "traceparent"
ROOT_ANNOTATION = "kubeloop.io/pod-trace"  # says that the span in TRACEPARENT_ANNOTATION is the pod's own: see RootNote

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?").fullmatch
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16


@dataclass(frozen=True, slots=True)
class TraceContext:
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
    if version == "ff" or (version == "00" and rest) or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1))


@dataclass(frozen=True, slots=True)
class RootNote:
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
        parts = [str(self.start_ns)]
        if self.parent_span_id:
            parts.append(f"parent={self.parent_span_id}")
        if self.link:
            parts.append(f"link={self.link}")
        if self.by_creator:
            parts.append("by=creator")
        return ";".join(parts)


def parse_root_note(text: str) -> RootNote | None:
    """What str(RootNote) wrote; None for anything else."""
    start, *others = text.split(";")
    fields = dict(other.partition("=")[::2] for other in others)
    if not start.isdecimal() or len(start) > 19:
        return None
    return RootNote(int(start), fields.get("parent", ""), fields.get("link", ""), fields.get("by") == "creator")


def new_trace_id(rng: random.Random) -> str:
    return f"{rng.getrandbits(128) or 1:032x}"


def new_span_id(rng: random.Random) -> str:
    return f"{rng.getrandbits(64) or 1:016x}"


def request_headers(traceparent: str) -> Mapping[str, str]:
    """Headers that hand the context on with a request; none for ""."""
    return {TRACEPARENT_HEADER: traceparent} if traceparent else {}
