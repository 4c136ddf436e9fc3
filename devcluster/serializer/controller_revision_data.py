"""Data of ControllerRevisions: Kubernetes keeps the JSON text that was sent, and compares it as text.

So a patch of any other field is rejected if the data was sent with spaces or unsorted keys: a patched object has
neither. Source: apimachinery runtime.RawExtension with evanphx/json-patch and DefaultUnstructuredConverter;
pkg/apis/apps/validation.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec

from kubeloop.devcluster.api.field_access import without_managed_fields
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import CONTROLLER_REVISIONS, Resource

_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_STRING_OR_SPACE = re.compile(rb'"(?:[^"\\]|\\.)*"|\s+')
_DUPLICATE = 'duplicate field "data.'


class SentData(dict[str, Any]):
    """Data with the text in which it was sent.

    Data sent as protobuf, or read from the data directory, is a plain dict: its text is unknown, and it is compared by
    value.
    """

    __slots__ = ("text",)
    text: bytes

    @classmethod
    def of(cls, value: JSON, text: bytes) -> SentData:
        result = cls(value)
        result.text = text
        return result


class _WithData(msgspec.Struct):
    data: msgspec.Raw


def record_sent_text(resource: Resource[Any], obj: JSON, body: bytes, strict: list[str]) -> list[str]:
    """Record in `obj` the text of the data in a JSON `body`, if the object is a ControllerRevision.

    Returns the strict errors except those inside of the data, which Kubernetes does not check.
    """
    if resource is not CONTROLLER_REVISIONS or not isinstance(obj.get("data"), dict):
        return strict
    try:
        text = bytes(msgspec.json.decode(body, type=_WithData).data)
    except (msgspec.DecodeError, UnicodeDecodeError):  # not JSON, or with unpaired surrogates
        return strict
    obj["data"] = SentData.of(obj["data"], text)
    return [error for error in strict if not error.startswith(_DUPLICATE)]


def record_patched_text(resource: Resource[Any], obj: JSON, current: JSON | None, *, is_typed: bool) -> None:
    """Record in `obj`, a patched form of `current`, the text of its data.

    is_typed: patched by a strategic merge patch or an apply, which decode and encode the whole object.
    """
    data = obj.get("data")
    if resource is not CONTROLLER_REVISIONS or not isinstance(data, dict):
        return
    if is_typed:
        obj["data"] = SentData.of(data, _escape_html(_encode_sorted(_normalize_numbers(data))))
    elif current is None or data is not current.get("data"):
        obj["data"] = SentData.of(data, _escape_html(_encode_sorted(data)))
    elif isinstance(data, SentData):
        obj["data"] = SentData.of(data, compact(data.text))


def record_applied_text(resource: Resource[Any], obj: JSON, applied: JSON, current: JSON | None) -> None:
    """Record the text of an applied object; an apply that changes nothing keeps the current text.

    applied: the configuration before it was decoded. See record_patched_text().
    """
    if (
        resource is CONTROLLER_REVISIONS
        and current is not None
        and without_managed_fields(applied) == without_managed_fields(current)
    ):
        obj["data"] = current.get("data")
    else:
        record_patched_text(resource, obj, current, is_typed=True)


def is_same_data(one: Any, other: Any) -> bool:
    if isinstance(one, SentData) and isinstance(other, SentData):
        return one.text == other.text
    return bool(one == other)


def compact(text: bytes) -> bytes:
    """Return JSON text without spaces and with HTML characters escaped, as Go encodes a RawMessage."""
    return _escape_html(_STRING_OR_SPACE.sub(lambda match: match[0] if match[0][:1] == b'"' else b"", text))


def _escape_html(text: bytes) -> bytes:
    return text.replace(b"&", rb"\u0026").replace(b"<", rb"\u003c").replace(b">", rb"\u003e")


def _normalize_numbers(value: Any) -> Any:
    """Return the value as Go's encoder writes it: 1.0 as 1, integers beyond int64 as float64."""
    if isinstance(value, dict):
        return {name: _normalize_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_normalize_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return int(Decimal(repr(float(value))))
    return value
