"""Pods in flight, and the cluster events that they may have missed."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from kubeloop.scheduler.api.events import ClusterEvent


class InFlightEvent(msgspec.Struct, frozen=True):
    event: ClusterEvent
    old: Any
    new: Any


class InFlightEvents:
    """Pods in flight (popped and not done yet), and the cluster events since they were popped.

    A pod that is rejected is then checked against the events that it missed. The log of pods (by UID) and events is
    truncated at the front up to the oldest pod in flight. Source: active_queue.go of v1.36.
    """

    def __init__(self) -> None:
        self._log: deque[InFlightEvent | str | None] = deque()  # str: UID of a popped pod; None: a pod that is done
        self._first = 0  # position of _log[0] since the start
        self._pods: dict[str, tuple[int, str]] = {}  # UID -> (its position, "namespace/name")

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def start(self, uid: str, key: str) -> None:
        self._pods[uid] = self._first + len(self._log), key
        self._log.append(uid)

    def add_event(self, event: ClusterEvent, old: Any, new: Any) -> None:
        """Log the event if any pod is in flight."""
        if self._pods:
            self._log.append(InFlightEvent(event, old, new))

    def events_since(self, uid: str) -> list[InFlightEvent]:
        """Return the events since the pod was popped, oldest first. Raises KeyError if it is not in flight."""
        start = self._pods[uid][0] - self._first + 1
        return [entry for entry in itertools.islice(self._log, start, None) if isinstance(entry, InFlightEvent)]

    def done(self, uid: str) -> None:
        """Remove the pod from the pods in flight. No effect if it was not."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        log = self._log
        log[pod[0] - self._first] = None
        while log and not isinstance(log[0], str):
            log.popleft()
            self._first += 1

    def keys(self) -> list[str]:
        return [key for _, key in self._pods.values()]

    def log(self) -> Iterator[tuple[str, str]]:
        """Yield ("pod", key) and ("event", label), oldest first."""
        for entry in self._log:
            if isinstance(entry, str):
                yield "pod", self._pods[entry][1]
            elif entry is not None:
                yield "event", entry.event.label
