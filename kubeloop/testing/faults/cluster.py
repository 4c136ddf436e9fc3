"""The API server of a run under faults, its story, and its violations."""

from __future__ import annotations

import asyncio
import bisect
import logging
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kubeloop.devcluster.api.request import ApiRequest, PendingResponse, Response
from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.objects.resources import Resource
from kubeloop.testing.virtual_time import VirtualClock


class RecordedCluster:
    """An API server in memory, and what happens in a run.

    name: that of another cluster than the controllers' own, which shares story and violations with it. story: lines
    about all that happens. violations: of invariants.
    """

    def __init__(
        self, rng: random.Random, settings: ServingSettings, *, name: str = "", own: RecordedCluster | None = None
    ) -> None:
        self.name = name
        self.clock = VirtualClock()
        self.server = ApiServer(clock=self.clock, rng=random.Random(rng.random()), token=None, settings=settings)
        self.store = self.server.store
        self.story: list[str] = [] if own is None else own.story
        self.violations: list[str] = [] if own is None else own.violations
        self._tasks: set[asyncio.Task[None]] = set()
        self._revisions: list[tuple[float, int]] = []

    def perform(self, *requests: ApiRequest) -> None:
        """Send requests of a user, one after the other; one that has to wait delays those that follow."""
        for number, request in enumerate(requests, start=1):
            response = self.server.respond(request)
            if not isinstance(response, Response):
                task = asyncio.ensure_future(self._complete(response, requests[number:]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return

    async def _complete(self, response: PendingResponse, rest: Sequence[ApiRequest]) -> None:
        await response()
        self.perform(*rest)

    def tell(self, line: str) -> None:
        self.story.append(f"{asyncio.get_running_loop().time():9.3f} s  {line}")

    def violate(self, problem: str) -> None:
        """Record a violation instead of raising, because a controller would catch the error."""
        self.tell(f"VIOLATION: {problem}")
        self.violations.append(problem)

    def record_revisions(self, *resources: Resource[Any]) -> None:
        """Record when these resources change, for `revision_at`."""
        for resource in resources:
            self.store.subscribe(resource, self._note_revision)

    def revision_at(self, seconds: float) -> int:
        """Return the newest revision at this time of the loop; at the earliest that of the first change."""
        at = bisect.bisect_right(self._revisions, (seconds, sys.maxsize))
        return self._revisions[max(0, at - 1)][1] if self._revisions else self.store.revision

    def _note_revision(self, change: Change) -> None:
        self._revisions.append((change.seconds, change.revision))

    @contextmanager
    def recorded_exceptions(self) -> Iterator[None]:
        """Record logged exceptions of built-in types as violations: errors of the program, not of a request."""
        handler = _ExceptionRecorder(self)
        logger = logging.getLogger("kubeloop")
        propagates, level = logger.propagate, logger.level
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagates
            logger.setLevel(level)


class _ExceptionRecorder(logging.Handler):
    def __init__(self, cluster: RecordedCluster) -> None:
        super().__init__(logging.ERROR)
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and type(first_error(error)).__module__ == "builtins":
            self._cluster.violate(f"{record.name}: {record.getMessage()}: {error!r}")


def first_error(error: BaseException) -> BaseException:
    """Return the first single exception in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
