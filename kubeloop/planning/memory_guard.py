"""Ends a plan or a replay before the objects that its controllers create use up the memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.objects.resources import PODS
from kubeloop.kube.user_error import UserError
from kubeloop.recording import memory

RESERVE_BYTES: Final = 64 << 20  # more than the pods between two checks take
PODS_PER_CHECK: Final = 20  # a check takes a tenth of a millisecond, each pod some milliseconds


class MemoryGuard:
    """Checks the memory that is left each time that a number of pods was created. name: of the cluster, for errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._created = 0
        self._is_due = asyncio.Event()

    def pod_changed(self, change: Change) -> None:
        """Receive a change of a pod from the store."""
        if change.type == "ADDED":
            self._created += 1
            if self._created % PODS_PER_CHECK == 0:
                self._is_due.set()  # an error of a subscriber would be a failed request

    def check(self) -> None:
        """Raise UserError if little memory is left."""
        available = memory.available_memory()
        if available < RESERVE_BYTES:
            seconds = asyncio.get_running_loop().time()
            raise UserError(
                f"{self._name}: no memory is left after {seconds:.0f} s of virtual time, with {self._created} pods: "
                f"{memory.gibibytes(available)} are available",
                hint="use a machine with more memory, or a recording of one namespace (kubeloop record -n)",
            )

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            self.check()


@contextlib.asynccontextmanager
async def memory_guard(store: ObjectStore, name: str) -> AsyncIterator[None]:
    """Watch the memory for the length of the context. Without memory, UserError is raised out of it, in a group."""
    guard = MemoryGuard(name)
    unsubscribe = store.subscribe(PODS, guard.pod_changed)
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(guard.run(), name="memory")
            yield
            task.cancel()
    finally:
        unsubscribe()
