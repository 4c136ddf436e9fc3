"""Traces as OTLP in JSON: written for other tools, and read from what they write.

Written: one ExportTraceServiceRequest, ids in hexadecimal, 64-bit numbers as text, enums as numbers
(https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). Read: the same; a file with one such document on
each line, as the collector's file exporter writes; and the answers of trace stores that wrap it (Tempo, Jaeger), which
may write ids in base64 and enums by name. May import msgspec and this folder only.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

_KINDS: Final = ("unspecified", "internal", "server", "client", "producer", "consumer")
_STATUS: Final = ("UNSET", "OK", "ERROR")
_GZIP: Final = b"\x1f\x8b"
_MAX_DEPTH: Final = 32  # of attribute values in attribute values
_LAST_NS: Final = (1 << 64) - 1

_hexadecimal = re.compile(r"[0-9a-fA-F]*").fullmatch


class NotOtlp(ValueError):
    """The text is no OTLP trace document; the message says where and what is wrong."""


def to_otlp(documents: Iterable[Mapping[str, Any]], *, version: str) -> dict[str, Any]:
    """Documents of traces as one TracesData. version: of the instrumentation scope "kubeloop".

    A span of another service, read from a file before, keeps its own resource.
    """
    by_service: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        for span in document["spans"]:
            by_service.setdefault(span.get("service") or "kubeloop", []).append(_written(document["traceId"], span))
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
                "scopeSpans": [
                    {
                        "scope": {"name": service, "version": version} if service == "kubeloop" else {"name": service},
                        "spans": spans,
                    }
                ],
            }
            for service, spans in by_service.items()
        ]
    }


def from_otlp(content: bytes) -> list[dict[str, Any]]:
    """The traces in a file, as documents: in each the root first, then spans by start. Gzip is unpacked.

    Spans of one trace come together wherever they stand; a span that is there twice counts once. Raises NotOtlp.
    """
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise NotOtlp(f"broken gzip: {error}") from None
    traces: dict[str, dict[str, dict[str, Any]]] = {}
    for where, value in _values(content):
        for resource_spans in _resource_spans(value, where):
            _read_resource_spans(resource_spans, where, traces)
    return [{"traceId": trace_id, "spans": _in_order([*spans.values()])} for trace_id, spans in traces.items()]


# --- writing ----------------------------------------------------------------------------------------------------


def _written(trace_id: str, span: Mapping[str, Any]) -> dict[str, Any]:
    status = span["status"]
    code = _STATUS.index(status.get("code", "UNSET"))
    written: dict[str, Any] = {
        "traceId": trace_id,
        "spanId": span["spanId"],
        "name": span["name"],
        "kind": _KINDS.index(span.get("kind", "internal")),
        "startTimeUnixNano": str(span["start"]),
        "endTimeUnixNano": str(span["end"]),
        "attributes": _attributes(span["attributes"]),
    }
    if span["parentSpanId"]:
        written["parentSpanId"] = span["parentSpanId"]
    if span.get("events"):
        written["events"] = [
            {
                "timeUnixNano": str(event["time"]),
                "name": event["name"],
                "attributes": _attributes(event.get("attributes", {})),
            }
            for event in span["events"]
        ]
    if span.get("links"):
        written["links"] = [
            {
                "traceId": link["traceId"],
                "spanId": link["spanId"],
                "attributes": _attributes(link.get("attributes", {})),
            }
            for link in span["links"]
        ]
    # OK is for those who decide that an error is none (specification): ours says nothing
    written["status"] = {"code": 2, "message": status.get("message", "")} if code == 2 else {}
    return written


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any_value(value)} for key, value in attributes.items()]


def _any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_any_value(each) for each in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _attributes(value)}}
    return {"stringValue": str(value)}


# --- reading ----------------------------------------------------------------------------------------------------


def _values(content: bytes) -> Iterator[tuple[str, Any]]:
    """The JSON values of a file and where they stand: one, or one a line."""
    try:
        yield "", msgspec.json.decode(content)
        return
    except msgspec.DecodeError as error:
        lines = [(number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
        if len(lines) < 2:
            raise NotOtlp(f"not JSON: {error}") from None
    for number, line in lines:
        try:
            yield f"line {number}: ", msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise NotOtlp(f"line {number} is not JSON: {error}") from None


def _resource_spans(value: Any, where: str) -> list[Any]:
    """The list of resourceSpans, out of the wrapping of whoever wrote it."""
    if isinstance(value, dict):
        for key in ("resourceSpans", "resource_spans", "batches"):  # the last: Tempo's older API
            if isinstance(value.get(key), list):
                return list(value[key])
        for key in ("trace", "result", "data"):  # Tempo's API, Jaeger's API
            if isinstance(value.get(key), dict):
                return _resource_spans(value[key], f"{where}{key}.")
    raise NotOtlp(f"{where}no resourceSpans")


def _read_resource_spans(value: Any, where: str, traces: dict[str, dict[str, dict[str, Any]]]) -> None:
    resource_spans = _mapping(value, f"{where}resourceSpans[]")
    resource = _mapping(resource_spans.get("resource") or {}, f"{where}resource")
    service = str(_read_attributes(resource.get("attributes"), where).get("service.name", ""))
    scopes = resource_spans.get("scopeSpans") or resource_spans.get("instrumentationLibrarySpans") or []
    for scope in _list(scopes, f"{where}scopeSpans"):
        for each in _list(_mapping(scope, f"{where}scopeSpans[]").get("spans") or [], f"{where}spans"):
            trace_id, span = _read_span(_mapping(each, f"{where}spans[]"), service, where)
            traces.setdefault(trace_id, {})[span["spanId"]] = span


def _read_span(value: Mapping[str, Any], service: str, where: str) -> tuple[str, dict[str, Any]]:
    trace_id = _id(value.get("traceId"), 16, f"{where}traceId")
    start = _ns(value.get("startTimeUnixNano"), f"{where}startTimeUnixNano")
    status = _mapping(value.get("status") or {}, f"{where}status")
    code = _enum(status.get("code", 0), _STATUS, "STATUS_CODE_")
    span: dict[str, Any] = {
        "name": str(value.get("name", "")),
        "spanId": _id(value.get("spanId"), 8, f"{where}spanId"),
        "parentSpanId": _id(value["parentSpanId"], 8, f"{where}parentSpanId") if value.get("parentSpanId") else "",
        "start": start,
        "end": max(start, _ns(value.get("endTimeUnixNano") or start, f"{where}endTimeUnixNano")),
        "kind": _enum(value.get("kind", 0), _KINDS, "SPAN_KIND_"),
        "attributes": _read_attributes(value.get("attributes"), where),
        "links": [_read_link(each, where) for each in _list(value.get("links") or [], f"{where}links")],
        "status": {"code": "ERROR", "message": str(status.get("message", ""))} if code == "ERROR" else {"code": "OK"},
    }
    events = [_read_event(each, where) for each in _list(value.get("events") or [], f"{where}events")]
    if events:
        span["events"] = events
    if service and service != "kubeloop":
        span["service"] = service
    return trace_id, span


def _read_link(value: Any, where: str) -> dict[str, Any]:
    link = _mapping(value, f"{where}links[]")
    read: dict[str, Any] = {
        "traceId": _id(link.get("traceId"), 16, f"{where}links[].traceId"),
        "spanId": _id(link.get("spanId"), 8, f"{where}links[].spanId"),
    }
    attributes = _read_attributes(link.get("attributes"), where)
    return read | {"attributes": attributes} if attributes else read


def _read_event(value: Any, where: str) -> dict[str, Any]:
    event = _mapping(value, f"{where}events[]")
    return {
        "name": str(event.get("name", "")),
        "time": _ns(event.get("timeUnixNano"), f"{where}events[].timeUnixNano"),
        "attributes": _read_attributes(event.get("attributes"), where),
    }


def _read_attributes(value: Any, where: str, depth: int = 0) -> dict[str, Any]:
    pairs = [_mapping(each, f"{where}attributes[]") for each in _list(value or [], f"{where}attributes")]
    return {str(pair.get("key", "")): _read_any(pair.get("value") or {}, where, depth) for pair in pairs}


def _read_any(value: Any, where: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise NotOtlp(f"{where}attributes are nested deeper than {_MAX_DEPTH}")
    value = _mapping(value, f"{where}attribute value")
    if "arrayValue" in value:
        elements = _list(_mapping(value["arrayValue"], f"{where}arrayValue").get("values") or [], f"{where}arrayValue")
        return [_read_any(each, where, depth + 1) for each in elements]
    if "kvlistValue" in value:
        return _read_attributes(_mapping(value["kvlistValue"], f"{where}kvlistValue").get("values"), where, depth + 1)
    if "intValue" in value:
        try:
            return int(value["intValue"])
        except (TypeError, ValueError):
            raise NotOtlp(f"{where}intValue {value['intValue']!r} is no number") from None
    return next((value[key] for key in ("stringValue", "boolValue", "doubleValue", "bytesValue") if key in value), "")


def _id(value: Any, length: int, where: str) -> str:
    """An id of `length` bytes in lower-case hexadecimal."""
    if isinstance(value, str):
        if len(value) == 2 * length and _hexadecimal(value):
            return value.lower()
        try:
            decoded = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            decoded = b""
        if len(decoded) == length:
            return decoded.hex()
    raise NotOtlp(f"{where} {value!r} is no id of {length} bytes")


def _ns(value: Any, where: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise NotOtlp(f"{where} {value!r} is no time in nanoseconds") from None
    if not 0 <= number <= _LAST_NS:
        raise NotOtlp(f"{where} {value!r} is no time in nanoseconds")
    return number


def _enum(value: Any, names: tuple[str, ...], prefix: str) -> str:
    """By number or by name; what we do not know counts as the first."""
    if isinstance(value, str):
        value = value.removeprefix(prefix)
        return next((name for name in names if name.lower() == value.lower()), names[0])
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else names[0]


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise NotOtlp(f"{where} is no object")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise NotOtlp(f"{where} is no list")
    return value


def _in_order(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A root first, each span after its parent, siblings by start.

    Spans whose parent is missing stand at the top; so does one of those that are each other's parents.
    """
    spans.sort(key=lambda span: (span["start"], -span["end"]))
    ids = {span["spanId"] for span in spans}
    children: dict[str, list[dict[str, Any]]] = {}
    for span in spans:
        if span["parentSpanId"] == span["spanId"]:
            span["parentSpanId"] = ""
        children.setdefault(span["parentSpanId"] if span["parentSpanId"] in ids else "", []).append(span)
    ordered: list[dict[str, Any]] = []
    seen: set[str] = set()

    def walk(tops: list[dict[str, Any]]) -> None:
        waiting = tops[::-1]
        while waiting:
            span = waiting.pop()
            if span["spanId"] not in seen:
                seen.add(span["spanId"])
                ordered.append(span)
                waiting += children.get(span["spanId"], [])[::-1]

    walk(children.get("", []))
    for span in spans:
        if span["spanId"] not in seen:
            span["parentSpanId"] = ""
            walk([span])
    return ordered
