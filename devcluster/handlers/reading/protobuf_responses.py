"""Protobuf responses: objects, lists, failures and watch events. Each version of an object is encoded once.

Imported with the first protobuf request.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.handlers.reading.list import Page
from kubeloop.devcluster.serializer.conversion import from_stored
from kubeloop.devcluster.serializer.protobuf import codec
from kubeloop.devcluster.storage.store import Change, StoredObject
from kubeloop.kube.json_object import JSON

STREAM_TYPE = "application/vnd.kubernetes.protobuf;stream=watch"


class ProtobufWriter:
    """Encodes the objects of one resource in its API version."""

    def __init__(self, target: ServedResource) -> None:
        resource = target.resource
        self._target = target
        self._api_version = resource.api_version
        self._kind = resource.kind
        self._write = codec.writer(resource.api_version, resource.kind)
        self._as_stored = target.reads_as_stored

    def message(self, stored: StoredObject) -> bytes:
        if self._as_stored:
            return stored.protobuf(self._write)
        return self._write(from_stored(self._target, stored.object))

    def body(self, stored: StoredObject) -> bytes:
        return codec.wrap_in_envelope(self._api_version, self._kind, self.message(stored))

    def body_of(self, obj: JSON) -> bytes:
        """Encode an object in its stored form."""
        return codec.wrap_in_envelope(self._api_version, self._kind, self._write(from_stored(self._target, obj)))

    def list_body(self, page: Page) -> bytes:
        messages = [self.message(stored) for stored in page.items]
        return codec.encode_list(self._api_version, self._target.list_kind, page.metadata, messages)


class ObjectFrames:
    """Watch frames with complete objects."""

    content_type = STREAM_TYPE

    def __init__(self, writer: ProtobufWriter) -> None:
        self._writer = writer

    def change(self, change: Change) -> bytes:
        return change.protobuf_event(self._of_change)

    def _of_change(self, change: Change) -> bytes:
        return self.stored(change.type, change.now)

    def stored(self, type_: str, stored: StoredObject) -> bytes:
        return codec.encode_watch_event(type_, self._writer.body(stored))

    def object(self, type_: str, obj: JSON) -> bytes:
        return codec.encode_watch_event(type_, self._writer.body_of(obj))

    def failure(self, status: JSON) -> bytes:
        return codec.encode_watch_event("ERROR", codec.encode(status))


class MetadataFrames:
    """Watch frames with PartialObjectMetadata; `output` creates it from an object."""

    content_type = STREAM_TYPE

    def __init__(self, output: Callable[[JSON], JSON]) -> None:
        self._view = output

    def change(self, change: Change) -> bytes:
        return self.object(change.type, change.now.object)

    def stored(self, type_: str, stored: StoredObject) -> bytes:
        return self.object(type_, stored.object)

    def object(self, type_: str, obj: JSON) -> bytes:
        return codec.encode_watch_event(type_, codec.encode(self._view(obj)))

    def failure(self, status: JSON) -> bytes:
        return codec.encode_watch_event("ERROR", codec.encode(status))
