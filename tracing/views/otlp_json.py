"""Traces as OTLP in JSON: writer for other tools, and reader of their files.

Written is one ExportTraceServiceRequest with IDs in hexadecimal, 64-bit numbers as strings and enums as numbers
(https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). Read are this format, files with one such document
per line (the collector's file exporter), and the responses of trace stores that wrap it (Tempo, Jaeger), which may have
IDs in base64 and enums by name. Imports msgspec and this folder only.
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
_MAX_DEPTH: Final = 32  # of nested attribute values
_LAST_NS: Final = (1 << 64) - 1

_hexadecimal = re.compile(r"[0-9a-fA-F]*").fullmatch


class OtlpJsonError(ValueError):
    """The content is not an OTLP trace document; the message says where and why."""


def to_otlp(documents: Iterable[Mapping[str, Any]], *, version: str) -> dict[str, Any]:
    """Convert trace documents to one TracesData. version: of the instrumentation scope "kubeloop".

    A span of another service, read from a file before, keeps its own resource.
    """
    by_service: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        for span in document["spans"]:
            by_service.setdefault(span.get("service") or "kubeloop", []).append(_otlp_span(document["traceId"], span))
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
    """Parse the traces of a file into documents, each with the root first, then spans by start. Unpacks gzip.

    Spans of one trace come together wherever they stand; a span that is there twice counts once. Raises OtlpJsonError.
    """
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise OtlpJsonError(f"broken gzip: {error}") from None
    traces: dict[str, dict[str, dict[str, Any]]] = {}
    for where, value in _values(content):
        for resource_spans in _resource_spans(value, where):
            _read_resource_spans(resource_spans, where, traces)
    return [{"traceId": trace_id, "spans": _in_order([*spans.values()])} for trace_id, spans in traces.items()]


# --- writing ----------------------------------------------------------------------------------------------------


def _otlp_span(trace_id: str, span: Mapping[str, Any]) -> dict[str, Any]:
    status = span["status"]
    code = _STATUS.index(status.get("code", "UNSET"))
    otlp_span: dict[str, Any] = {
        "traceId": trace_id,
        "spanId": span["spanId"],
        "name": span["name"],
        "kind": _KINDS.index(span.get("kind", "internal")),
        "startTimeUnixNano": str(span["start"]),
        "endTimeUnixNano": str(span["end"]),
        "attributes": _attributes(span["attributes"]),
    }
    if span["parentSpanId"]:
        otlp_span["parentSpanId"] = span["parentSpanId"]
    if span.get("events"):
        otlp_span["events"] = [
            {"timeUnixNano": str(event["time"]), "name": event["name"], **_described(event)} for event in span["events"]
        ]
    if span.get("links"):
        otlp_span["links"] = [
            {"traceId": link["traceId"], "spanId": link["spanId"], **_described(link)} for link in span["links"]
        ]
    # Status OK is reserved for an application that overrides an error (specification): success is written as unset
    otlp_span["status"] = {"code": 2, "message": status.get("message", "")} if code == 2 else {}
    return otlp_span


def _described(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"attributes": _attributes(part.get("attributes", {}))}


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
        return {"arrayValue": {"values": [_any_value(element) for element in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _attributes(value)}}
    return {"stringValue": str(value)}


# --- reading ----------------------------------------------------------------------------------------------------


def _values(content: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the JSON values of a file, one or one per line, with their position."""
    try:
        yield "", msgspec.json.decode(content)
        return
    except msgspec.DecodeError as error:
        lines = [(number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
        if len(lines) < 2:
            raise OtlpJsonError(f"not JSON: {error}") from None
    for number, line in lines:
        try:
            yield f"line {number}: ", msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise OtlpJsonError(f"line {number} is not JSON: {error}") from None


def _resource_spans(value: Any, where: str) -> list[Any]:
    """Return the list of resourceSpans, unwrapped from the format of a trace store."""
    if isinstance(value, dict):
        for key in ("resourceSpans", "resource_spans", "batches"):  # the last: Tempo's older API
            if isinstance(value.get(key), list):
                return list(value[key])
        for key in ("trace", "result", "data"):  # Tempo's API, Jaeger's API
            if isinstance(value.get(key), dict):
                return _resource_spans(value[key], f"{where}{key}.")
    raise OtlpJsonError(f"{where}no resourceSpans")


def _read_resource_spans(value: Any, where: str, traces: dict[str, dict[str, dict[str, Any]]]) -> None:
    resource_spans = _mapping(value, f"{where}resourceSpans[]")
    resource = _mapping(resource_spans.get("resource") or {}, f"{where}resource")
    service = str(_read_attributes(resource.get("attributes"), where).get("service.name", ""))
    scopes = resource_spans.get("scopeSpans") or resource_spans.get("instrumentationLibrarySpans") or []
    for scope in _list(scopes, f"{where}scopeSpans"):
        for span_json in _list(_mapping(scope, f"{where}scopeSpans[]").get("spans") or [], f"{where}spans"):
            trace_id, span = _read_span(_mapping(span_json, f"{where}spans[]"), service, where)
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
        "links": [_read_link(link, where) for link in _list(value.get("links") or [], f"{where}links")],
        "status": {"code": "ERROR", "message": str(status.get("message", ""))} if code == "ERROR" else {"code": "OK"},
    }
    events = [_read_event(event, where) for event in _list(value.get("events") or [], f"{where}events")]
    if events:
        span["events"] = events
    if service and service != "kubeloop":
        span["service"] = service
    return trace_id, span


def _read_link(value: Any, where: str) -> dict[str, Any]:
    link = _mapping(value, f"{where}links[]")
    link_document: dict[str, Any] = {
        "traceId": _id(link.get("traceId"), 16, f"{where}links[].traceId"),
        "spanId": _id(link.get("spanId"), 8, f"{where}links[].spanId"),
    }
    attributes = _read_attributes(link.get("attributes"), where)
    return link_document | {"attributes": attributes} if attributes else link_document


def _read_event(value: Any, where: str) -> dict[str, Any]:
    event = _mapping(value, f"{where}events[]")
    return {
        "name": str(event.get("name", "")),
        "time": _ns(event.get("timeUnixNano"), f"{where}events[].timeUnixNano"),
        "attributes": _read_attributes(event.get("attributes"), where),
    }


def _read_attributes(value: Any, where: str, depth: int = 0) -> dict[str, Any]:
    pairs = [_mapping(pair, f"{where}attributes[]") for pair in _list(value or [], f"{where}attributes")]
    return {str(pair.get("key", "")): _read_any(pair.get("value") or {}, where, depth) for pair in pairs}


def _read_any(value: Any, where: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise OtlpJsonError(f"{where}attributes are nested deeper than {_MAX_DEPTH}")
    value = _mapping(value, f"{where}attribute value")
    if "arrayValue" in value:
        elements = _list(_mapping(value["arrayValue"], f"{where}arrayValue").get("values") or [], f"{where}arrayValue")
        return [_read_any(element, where, depth + 1) for element in elements]
    if "kvlistValue" in value:
        return _read_attributes(_mapping(value["kvlistValue"], f"{where}kvlistValue").get("values"), where, depth + 1)
    if "intValue" in value:
        try:
            return int(value["intValue"])
        except (TypeError, ValueError):
            raise OtlpJsonError(f"{where}intValue {value['intValue']!r} is not a number") from None
    return next((value[key] for key in ("stringValue", "boolValue", "doubleValue", "bytesValue") if key in value), "")


def _id(value: Any, length: int, where: str) -> str:
    """Parse an ID of `length` bytes; returns it in lower-case hexadecimal."""
    if isinstance(value, str):
        if len(value) == 2 * length and _hexadecimal(value):
            return value.lower()
        try:
            decoded = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            decoded = b""
        if len(decoded) == length:
            return decoded.hex()
    raise OtlpJsonError(f"{where} {value!r} is not an ID of {length} bytes")


def _ns(value: Any, where: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise OtlpJsonError(f"{where} {value!r} is not a time in nanoseconds") from None
    if not 0 <= number <= _LAST_NS:
        raise OtlpJsonError(f"{where} {value!r} is not a time in nanoseconds")
    return number


def _enum(value: Any, names: tuple[str, ...], prefix: str) -> str:
    """Return an enum value, from its number or name; an unknown one counts as the first."""
    if isinstance(value, str):
        value = value.removeprefix(prefix)
        return next((name for name in names if name.lower() == value.lower()), names[0])
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else names[0]


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise OtlpJsonError(f"{where} is not an object")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise OtlpJsonError(f"{where} is not a list")
    return value


def _in_order(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort spans: a root first, each span after its parent, siblings by start.

    A span without its parent becomes a root; so does one span of a cycle.
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
        pending = tops[::-1]
        while pending:
            span = pending.pop()
            if span["spanId"] not in seen:
                seen.add(span["spanId"])
                ordered.append(span)
                pending += children.get(span["spanId"], [])[::-1]

    walk(children.get("", []))
    for span in spans:
        if span["spanId"] not in seen:
            span["parentSpanId"] = ""
            walk([span])
    return ordered
