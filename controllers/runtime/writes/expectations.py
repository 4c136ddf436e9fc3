"""Expectations: creations and deletions that a controller has requested and its caches do not show yet.

A controller that acts before its informer shows the last creations would create the same Pods twice. It records the
number of creations or deletions before it sends the requests, event handlers decrease the number, and until it is zero
the controller creates and deletes no Pods. Expectations that are never met (a lost event) expire. Source:
pkg/controller/controller_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from kubeloop.kube.clock import Clock

EXPECTATIONS_TIMEOUT = timedelta(minutes=5)


class Expectation(msgspec.Struct):
    """Number of creations and deletions still to be observed. Negative (more than expected) counts as fulfilled."""

    creations: int
    deletions: int
    recorded_at: datetime

    @property
    def fulfilled(self) -> bool:
        return self.creations <= 0 and self.deletions <= 0


class Expectations:
    """One Expectation per controller key, and the keys of the Pods whose deletion is not observed yet.

    A deletion counts only for a Pod in that set, and only once: a terminating Pod causes several events.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expected: dict[str, Expectation] = {}
        self._pending_deletions: dict[str, set[str]] = {}

    def met(self, key: str) -> bool:
        """Return True if the controller of `key` may act: its expectations are fulfilled, missing or expired."""
        expectation = self._expected.get(key)
        if expectation is None or expectation.fulfilled:
            return True
        return self._clock.now() - expectation.recorded_at > EXPECTATIONS_TIMEOUT

    def expect(self, key: str, creations: int, deletions: Iterable[str]) -> None:
        """Expect a number of creations, and the deletion of Pods given by key."""
        pending = self._pending_deletions[key] = set(deletions)
        self._set(key, creations, len(pending))

    def expect_creations(self, key: str, count: int) -> None:
        self._set(key, count, 0)

    def expect_deletions(self, key: str, pods: Iterable[str]) -> None:
        """Expect the deletion of these Pods, given by key."""
        self.expect(key, 0, pods)

    def creation_observed(self, key: str) -> None:
        self._lower(key, 1, 0)

    def deletion_observed(self, key: str, pod: str) -> None:
        pending = self._pending_deletions.get(key)
        if pending is not None and pod in pending:
            self._lower(key, 0, 1)
            pending.discard(pod)

    def forget(self, key: str) -> None:
        """Drop the expectations of `key`: its object was deleted, and a new one of the same name starts without."""
        self._expected.pop(key, None)
        self._pending_deletions.pop(key, None)

    def _lower(self, key: str, creations: int, deletions: int) -> None:
        expectation = self._expected.get(key)
        if expectation is not None:
            expectation.creations -= creations
            expectation.deletions -= deletions

    def _set(self, key: str, creations: int, deletions: int) -> None:
        self._expected[key] = Expectation(creations, deletions, self._clock.now())


class UIDExpectations:
    """UIDs per controller key of objects whose change was requested and is not observed yet. They never expire.

    For example the Pods from which the Job controller has removed its finalizer. Source: uidTrackingExpectations in
    pkg/controller/job/tracking_utils.go.
    """

    def __init__(self) -> None:
        self._pending: dict[str, set[str]] = {}

    def pending(self, key: str) -> frozenset[str]:
        """Return the UIDs that are not observed yet."""
        return frozenset(self._pending.get(key, ()))

    def expect(self, key: str, uids: Iterable[str]) -> None:
        """Add UIDs to those of `key`."""
        self._pending.setdefault(key, set()).update(uids)

    def observed(self, key: str, uid: str) -> None:
        pending = self._pending.get(key)
        if pending is not None:
            pending.discard(uid)

    def forget(self, key: str) -> None:
        """Drop the UIDs of `key`: its object was deleted."""
        self._pending.pop(key, None)
