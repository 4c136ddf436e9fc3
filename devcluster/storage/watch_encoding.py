"""Encoding of watch events. Objects that are sent as stored are encoded once for all watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubeloop.devcluster.storage.store import Change, StoredObject, encode_object
from kubeloop.kube.json_object import JSON


class WatchEncoder(Protocol):
    """Encodes the events of one watch, whose response has `content_type`."""

    content_type: str

    def change(self, change: Change) -> bytes:
        """Encode a write."""
        ...

    def stored(self, type_: str, stored: StoredObject) -> bytes:
        """Encode a stored version with another event type, such as an initial ADDED."""
        ...

    def object(self, type_: str, obj: JSON) -> bytes:
        """Encode an object that is not stored: a bookmark, or the last matching state of an object."""
        ...

    def failure(self, status: JSON) -> bytes:
        """Encode an ERROR event with a Status."""
        ...


def encode_json_event(type_: str, obj: JSON) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), encode_object(obj))


class JsonWatchEncoder:
    """JSON events with the objects as stored."""

    content_type = "application/json"

    change = staticmethod(Change.json_event)
    object = staticmethod(encode_json_event)

    def stored(self, type_: str, stored: StoredObject) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (type_.encode(), stored.json())

    def failure(self, status: JSON) -> bytes:
        return encode_json_event("ERROR", status)


class TransformingWatchEncoder:
    """JSON events with a transformed object: a Table, PartialObjectMetadata, or another API version."""

    content_type = "application/json"

    def __init__(self, encode: Callable[[str, JSON], bytes]) -> None:
        self._encode_object = encode

    def change(self, change: Change) -> bytes:
        return self._encode_object(change.type, change.now.object)

    def stored(self, type_: str, stored: StoredObject) -> bytes:
        return self._encode_object(type_, stored.object)

    def object(self, type_: str, obj: JSON) -> bytes:
        return self._encode_object(type_, obj)

    def failure(self, status: JSON) -> bytes:
        return encode_json_event("ERROR", status)


JSON_WATCH_ENCODER = JsonWatchEncoder()
