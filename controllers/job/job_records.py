"""State that the Job controller keeps between syncs, by key of the Job."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubeloop.controllers.job.pod_backoff import BackoffRecord
from kubeloop.controllers.runtime.consistency import ConsistencyStore
from kubeloop.controllers.runtime.expectations import Expectations, UIDExpectations
from kubeloop.kube.clock import Clock
from kubeloop.kube.objects.api_types import Job


class JobRecords:
    """State between syncs.

    expectations: Pods created and deleted, which the cache does not show yet.
    released: UIDs of Pods whose finalizer was removed, which the cache does not show yet.
    consistency: versions of Jobs and Pods that were written.
    backoffs: failures of Pods, as of the last sync that wrote the status.
    finished: UIDs of Jobs that were written as finished, which the cache does not show yet.
    """

    def __init__(
        self, clock: Clock, read_versions: Mapping[str, Callable[[], str]], *, checks_consistency: bool
    ) -> None:
        self.expectations = Expectations(clock)
        self.released = UIDExpectations()
        self.consistency = ConsistencyStore(read_versions, enabled=checks_consistency)
        self.backoffs: dict[str, BackoffRecord] = {}
        self.finished: set[str] = set()

    def forget(self, key: str) -> None:
        """Drop what belongs to a key whose Job was deleted."""
        self.expectations.forget(key)
        self.released.forget(key)
        self.consistency.forget(key)
        self.backoffs.pop(key, None)

    def forget_job(self, job: Job) -> None:
        """Drop what only an unfinished Job needs."""
        self.consistency.forget(job.key, job.metadata.uid)
        self.backoffs.pop(job.key, None)
        self.finished.discard(job.metadata.uid)
