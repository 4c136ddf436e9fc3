"""The events of a watch as bytes. Objects that are sent as they are stored are encoded once, however many watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from kubeloop.devcluster.storage.store import Change, Stored
from kubeloop.kube.json_object import JSON

_encode = msgspec.json.Encoder().encode


class Frames(Protocol):
    """How one watch tells what happens. Its answer is of `content_type`."""

    content_type: str

    def change(self, change: Change) -> bytes:
        """A write, as it was."""
        ...

    def stored(self, type_: str, stored: Stored) -> bytes:
        """A version of an object under another type: the present state of one, that begins a watch."""
        ...

    def object(self, type_: str, obj: JSON) -> bytes:
        """What is stored nowhere: bookmarks, and what has left a selection."""
        ...

    def failure(self, status: JSON) -> bytes:
        """An ERROR with a Status."""
        ...


def plain_frame(type_: str, obj: JSON) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), _encode(obj))


class JsonFrames:
    """Lines of JSON with the objects as they are stored."""

    content_type = "application/json"

    change = staticmethod(Change.frame)

    def stored(self, type_: str, stored: Stored) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (type_.encode(), stored.json())

    def object(self, type_: str, obj: JSON) -> bytes:
        return plain_frame(type_, obj)

    def failure(self, status: JSON) -> bytes:
        return plain_frame("ERROR", status)


class WordedFrames:
    """Lines of JSON with something else in an object's place: a table, its metadata, its form in another version."""

    content_type = "application/json"

    def __init__(self, word: Callable[[str, JSON], bytes]) -> None:
        self._word = word

    def change(self, change: Change) -> bytes:
        return self._word(change.type, change.now.object)

    def stored(self, type_: str, stored: Stored) -> bytes:
        return self._word(type_, stored.object)

    def object(self, type_: str, obj: JSON) -> bytes:
        return self._word(type_, obj)

    def failure(self, status: JSON) -> bytes:
        return plain_frame("ERROR", status)


JSON_FRAMES = JsonFrames()
