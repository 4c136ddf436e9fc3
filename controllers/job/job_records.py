"""State that the Job controller keeps between syncs, by key of the Job."""

from __future__ import annotations

from kubeloop.controllers.job.policies.pod_backoff import BackoffRecord
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.expectations import Expectations, UIDExpectations
from kubeloop.kube.clock import Clock


class JobRecords:
    """State between syncs.

    expectations: Pods created and deleted, which the cache does not show yet.
    released: UIDs of Pods whose finalizer was removed, which the cache does not show yet.
    consistency: versions of Jobs and Pods that were written.
    backoffs: failures of Pods, as of the last sync that wrote the status.
    finished: UID of the Job if it was written as finished, which the cache does not show yet.
    """

    def __init__(self, clock: Clock, consistency: ConsistencyStore) -> None:
        self.expectations = Expectations(clock)
        self.released = UIDExpectations()
        self.consistency = consistency
        self.backoffs: dict[str, BackoffRecord] = {}
        self.finished: dict[str, str] = {}

    def forget(self, key: str, uid: str = "") -> None:
        """Drop the state of a Job that was deleted or has finished. uid: "" if it is unknown."""
        self.expectations.forget(key)
        self.released.forget(key)
        self.consistency.forget(key, uid)
        self.backoffs.pop(key, None)
        self.finished.pop(key, None)
