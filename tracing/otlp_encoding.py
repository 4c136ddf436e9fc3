"""Traces as OTLP protobuf (opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest), field by field.

The SDK's encoder takes some 20 us a span, most of a millisecond for a pod; written out like this it is a fifth of that,
on the loop that also schedules. A message is the concatenation of its fields, so that each trace is encoded once, when
it ends, and a request is put together from such pieces. Tests compare it with opentelemetry-proto.
May import `kubeloop.tracing.spans` and `kubeloop.tracing.context` only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from kubeloop.tracing.context import parse_traceparent
from kubeloop.tracing.spans import AttributeValue, Link, Span, SpanEvent, Trace

_MAX_CACHED = 20_000  # attributes; names of nodes, owners and reasons repeat, those of pods do not
_OF_ONE_POD = frozenset({"k8s.pod.name", "k8s.pod.uid"})  # not worth keeping
_TAGS = tuple(bytes((tag,)) for tag in range(0x80))
_KINDS = {"internal": b"\x30\x01", "client": b"\x30\x03", "consumer": b"\x30\x05"}
_SAMPLED, _REMOTE_KNOWN, _REMOTE = 0x001, 0x100, 0x200  # SpanFlags
_times = struct.Struct("<cQcQ").pack
_fixed64 = struct.Struct("<Q").pack
_fixed32 = struct.Struct("<I").pack
_double = struct.Struct("<d").pack
_FLAGS = b"\x85\x01" + _fixed32(_SAMPLED | _REMOTE_KNOWN)
_FLAGS_OF_REMOTE = b"\x85\x01" + _fixed32(_SAMPLED | _REMOTE_KNOWN | _REMOTE)


class TraceEncoder:
    """Encodes traces into the `spans` fields of a ScopeSpans, and wraps such pieces into a request."""

    def __init__(self, resource: Mapping[str, AttributeValue], scope_name: str, scope_version: str) -> None:
        attributes = b"".join(_field(0x0A, _key_value(key, value)) for key, value in resource.items())
        self._resource = _field(0x0A, attributes)
        self._scope = _field(0x0A, _text(0x0A, scope_name) + _text(0x12, scope_version))
        self._cached: dict[tuple[str, AttributeValue], bytes] = {}
        self._names: dict[str, bytes] = {}

    def request(self, pieces: Iterable[bytes]) -> bytes:
        """pieces: as encode() returns them."""
        scope_spans = self._scope + b"".join(pieces)
        return _field(0x0A, self._resource + _field(0x12, scope_spans))

    def encode(self, trace: Trace) -> bytes:
        trace_id = b"\x0a\x10" + bytes.fromhex(trace.trace_id)
        root = trace.root
        return b"".join([_field(0x12, self._span(trace_id, span, span is root)) for span in trace.spans])

    def _span(self, trace_id: bytes, span: Span, is_root: bool) -> bytes:
        parent_id = span.parent_span_id
        name = self._names.get(span.name)
        if name is None:
            name = _text(0x2A, span.name)
            if len(self._names) < _MAX_CACHED:
                self._names[span.name] = name
        parts = [
            trace_id,
            bytes.fromhex(f"1208{span.span_id}2208{parent_id}" if parent_id else f"1208{span.span_id}"),
            name,
            _KINDS[span.kind],
            _times(b"\x39", span.start_ns, b"\x41", span.end_ns),
        ]
        if span.attributes:
            parts.append(self._attributes(0x4A, span.attributes))
        if span.events:
            parts += [_field(0x5A, self._event(event)) for event in span.events]
        if span.links:
            parts += [_field(0x6A, link) for link in map(self._link, span.links) if link]
        if span.error is not None:
            parts.append(_field(0x7A, _text(0x12, span.error) + b"\x18\x02"))
        parts.append(_FLAGS_OF_REMOTE if is_root and parent_id else _FLAGS)
        return b"".join(parts)

    def _attributes(self, tag: int, attributes: Mapping[str, AttributeValue]) -> bytes:
        parts = []
        cached = self._cached
        tag_byte = _TAGS[tag]
        for item in attributes.items():
            key, value = item
            kind = type(value)
            if (kind is not str and kind is not int) or key in _OF_ONE_POD:  # True and 1 would be the same key
                parts.append(_field(tag, _key_value(key, value)))
                continue
            encoded = cached.get(item)
            if encoded is None:
                encoded = _key_value(key, value)
                encoded = _varint(len(encoded)) + encoded
                if len(cached) >= _MAX_CACHED:
                    cached.clear()
                cached[item] = encoded
            parts += (tag_byte, encoded)
        return b"".join(parts)

    def _event(self, event: SpanEvent) -> bytes:
        return b"\x09" + _fixed64(event.time_ns) + _text(0x12, event.name) + self._attributes(0x1A, event.attributes)

    def _link(self, link: Link) -> bytes:
        context = parse_traceparent(link.traceparent)
        if context is None:
            return b""
        ids = b"\x0a\x10" + bytes.fromhex(context.trace_id) + b"\x12\x08" + bytes.fromhex(context.span_id)
        relation = self._attributes(0x22, {"kubeloop.link": link.relation}) if link.relation else b""
        flags = _REMOTE_KNOWN | _REMOTE | (_SAMPLED if context.sampled else 0)
        return ids + relation + b"\x35" + _fixed32(flags)


def _key_value(key: str, value: AttributeValue) -> bytes:
    return _text(0x0A, key) + _field(0x12, _any_value(value))


def _any_value(value: AttributeValue) -> bytes:
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, str):
        return _text(0x0A, value)
    if isinstance(value, int):
        return b"\x18" + _varint(value & 0xFFFFFFFFFFFFFFFF)
    if isinstance(value, float):
        return b"\x21" + _double(value)
    return _field(0x2A, b"".join(_field(0x0A, _any_value(each)) for each in value))


def _text(tag: int, text: str) -> bytes:
    return _field(tag, text.encode("utf-8", "replace"))


def _field(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    return bytes((tag,)) + _varint(size) + content


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
