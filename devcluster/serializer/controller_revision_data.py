"""The data of a ControllerRevision: Kubernetes keeps the text that was sent, and compares it as text.

So a patch of any other field is refused if the data came with spaces, or its keys in another order than sorted: what
comes out of a patch has none, or is sorted. Source: apimachinery runtime.RawExtension and its way through
evanphx/json-patch and DefaultUnstructuredConverter; pkg/apis/apps/validation.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec

from kubeloop.devcluster.api.object_metadata import without_managed_fields
from kubeloop.devcluster.api.served_resources import CONTROLLER_REVISIONS
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_STRING_OR_SPACE = re.compile(rb'"(?:[^"\\]|\\.)*"|\s+')
_DUPLICATE = 'duplicate field "data.'


class SentData(dict[str, Any]):
    """Data with the text in which it came.

    What comes in protobuf, or is read back after a restart, is a plain dict: its text is not known, and it is compared
    by its value.
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
    """Note, in place, how the data of a JSON `body` is written, if it is a revision's.

    Returns the strict errors without those inside of the data, into which Kubernetes does not look.
    """
    if resource is not CONTROLLER_REVISIONS or not isinstance(obj.get("data"), dict):
        return strict
    try:
        text = bytes(msgspec.json.decode(body, type=_WithData).data)
    except (msgspec.DecodeError, UnicodeDecodeError):  # no JSON, or with half characters
        return strict
    obj["data"] = SentData.of(obj["data"], text)
    return [each for each in strict if not each.startswith(_DUPLICATE)]


def record_patched_text(resource: Resource[Any], obj: JSON, live: JSON | None, *, is_typed: bool) -> None:
    """Note, in place, how the data of what a patch has made of `live` is written.

    is_typed: by a strategic merge patch or an apply, which read all of an object and write it anew.
    """
    data = obj.get("data")
    if resource is not CONTROLLER_REVISIONS or not isinstance(data, dict):
        return
    if is_typed:
        obj["data"] = SentData.of(data, _escaped(_encode_sorted(_with_whole_numbers(data))))
    elif live is None or data is not live.get("data"):
        obj["data"] = SentData.of(data, _escaped(_encode_sorted(data)))
    elif isinstance(data, SentData):
        obj["data"] = SentData.of(data, compact(data.text))


def record_applied_text(resource: Resource[Any], obj: JSON, applied: JSON, live: JSON | None) -> None:
    """As keep_patched_text(): what is applied (`applied` before it was decoded) and changes nothing is not written
    anew."""
    if (
        resource is CONTROLLER_REVISIONS
        and live is not None
        and without_managed_fields(applied) == without_managed_fields(live)
    ):
        obj["data"] = live.get("data")
    else:
        record_patched_text(resource, obj, live, is_typed=True)


def is_same_data(one: Any, other: Any) -> bool:
    if isinstance(one, SentData) and isinstance(other, SentData):
        return one.text == other.text
    return bool(one == other)


def compact(text: bytes) -> bytes:
    """JSON as Go's encoder writes what it is given as text."""
    return _escaped(_STRING_OR_SPACE.sub(lambda found: found[0] if found[0][:1] == b'"' else b"", text))


def _escaped(text: bytes) -> bytes:
    return text.replace(b"&", rb"\u0026").replace(b"<", rb"\u003c").replace(b">", rb"\u003e")


def _with_whole_numbers(value: Any) -> Any:
    """Go writes 1.0 as 1, and what is beyond an int64 as the float64 that it has become."""
    if isinstance(value, dict):
        return {name: _with_whole_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return int(Decimal(repr(float(value))))
    return value
