"""Pods that were popped and are not done yet, and the events since.

Whoever comes back rejected looks at the events it has missed meanwhile. Source: active_queue.go of v1.36.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from kubeloop.scheduler.api.events import ClusterEvent


class MissedEvent(msgspec.Struct, frozen=True):
    event: ClusterEvent
    old: Any
    new: Any


class InFlight:
    """One log of pods (by UID) and events; it is cut at the front up to the oldest pod still in flight."""

    def __init__(self) -> None:
        self._log: deque[MissedEvent | str | None] = deque()  # str: UID of a popped pod; None: a pod that is done
        self._first = 0  # number of _log[0]
        self._pods: dict[str, tuple[int, str]] = {}  # UID -> (its number in the log, "namespace/name")

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def start(self, uid: str, key: str) -> None:
        self._pods[uid] = self._first + len(self._log), key
        self._log.append(uid)

    def add_event(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Remember the event if anybody is in flight."""
        if self._pods:
            self._log.append(MissedEvent(event, old, new))

    def events_since(self, uid: str) -> list[MissedEvent]:
        """The events since the pod was popped, oldest first. Raises KeyError if it is not in flight."""
        start = self._pods[uid][0] - self._first + 1
        return [entry for entry in itertools.islice(self._log, start, None) if isinstance(entry, MissedEvent)]

    def done(self, uid: str) -> None:
        """The pod is no longer in flight. Nothing happens if it was not."""
        known = self._pods.pop(uid, None)
        if known is None:
            return
        log = self._log
        log[known[0] - self._first] = None
        while log and not isinstance(log[0], str):
            log.popleft()
            self._first += 1

    def keys(self) -> list[str]:
        return [key for _, key in self._pods.values()]

    def log(self) -> Iterator[tuple[str, str]]:
        """("pod", key) and ("event", label), oldest first."""
        for entry in self._log:
            if isinstance(entry, str):
                yield "pod", self._pods[entry][1]
            elif entry is not None:
                yield "event", entry.event.label
