"""Expectations: what a controller has asked for and its caches do not show yet.

A controller that acts again before its informer has shown the last creations would create them twice. So it notes
what to expect before it sends, handlers count off what they see, and until the count is met it leaves the Pods alone.
Expectations that are never met (a lost event) expire. Source: pkg/controller/controller_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from kubeloop.kube.clock import Clock

EXPECTATIONS_TIMEOUT = timedelta(minutes=5)


class Expectation(msgspec.Struct):
    """Creations and deletions still to be seen. Negative: more was seen than expected, which counts as met."""

    creations: int
    deletions: int
    noted_at: datetime

    @property
    def fulfilled(self) -> bool:
        return self.creations <= 0 and self.deletions <= 0


class Expectations:
    """Per controller key one Expectation, and the keys of the Pods whose deletion is awaited.

    A deletion counts only for a Pod that is awaited, and only once: a Pod that terminates is seen several times.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expected: dict[str, Expectation] = {}
        self._awaited: dict[str, set[str]] = {}

    def get(self, key: str) -> Expectation | None:
        return self._expected.get(key)

    def awaited_deletions(self, key: str) -> frozenset[str]:
        """Keys of the Pods whose deletion is still to be seen."""
        return frozenset(self._awaited.get(key, ()))

    def met(self, key: str) -> bool:
        """Whether the controller of `key` may act: nothing is awaited, or it was awaited for too long."""
        expected = self._expected.get(key)
        if expected is None or expected.fulfilled:
            return True
        return self._clock.now() - expected.noted_at > EXPECTATIONS_TIMEOUT

    def expect_creations(self, key: str, count: int) -> None:
        self._set(key, count, 0)

    def expect_deletions(self, key: str, pods: Iterable[str]) -> None:
        """Expect the deletion of these Pods (keys)."""
        awaited = self._awaited[key] = set(pods)
        self._set(key, 0, len(awaited))

    def creation_observed(self, key: str) -> None:
        self.lower(key, 1, 0)

    def deletion_observed(self, key: str, pod: str) -> None:
        awaited = self._awaited.get(key)
        if awaited is not None and pod in awaited:
            self.lower(key, 0, 1)
            awaited.discard(pod)

    def lower(self, key: str, creations: int, deletions: int) -> None:
        """Expect that many fewer."""
        self.raise_by(key, -creations, -deletions)

    def raise_by(self, key: str, creations: int, deletions: int) -> None:
        """Expect that many more; nothing happens for a key without expectations."""
        expected = self._expected.get(key)
        if expected is not None:
            expected.creations += creations
            expected.deletions += deletions

    def forget(self, key: str) -> None:
        """Expect nothing any more: the object is gone, and one of the same name starts clean."""
        self._expected.pop(key, None)
        self._awaited.pop(key, None)

    def _set(self, key: str, creations: int, deletions: int) -> None:
        self._expected[key] = Expectation(creations, deletions, self._clock.now())
