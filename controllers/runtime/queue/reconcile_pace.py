"""The pace of reconciles: pods that wait for the scheduler of this process go first.

Shared by all controllers of the process. A burst of reconciles delays the scheduler in the event loop, and, if the API
server is busy, in the API server, where each request waits for those before it. There, reconciles that begin later
cost little throughput. Those that create pods begin before others: a Deployment whose ReplicaSet waits is not finished
earlier if the next one creates its own, too. Imports `kube.client.write_gate`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubeloop.kube.client.write_gate import Rank, WriteGate, WriteLimit

MAX_TURNS = 8  # of the event loop that a reconcile waits while pods wait for the scheduler: usually some ms
MAX_WAIT_SECONDS = 0.05  # for other reconciles to end: these may wait for anything


def never() -> bool:
    """Return False: there is no scheduler in this process."""
    return False


class ReconcilePace:
    """Lets reconciles begin, some of them later: first those that create pods, then in the order of begin()."""

    def __init__(self, has_urgent_work: Callable[[], bool] = never, gate: WriteGate | None = None) -> None:
        """has_urgent_work: returns True while pods wait for the scheduler. gate: that of the client."""
        self._has_urgent_work = has_urgent_work
        self._gate = gate or WriteGate(WriteLimit())

    async def begin(self, *, creates_pods: bool = False) -> None:
        """Wait until a reconcile may begin, for a limited time. It counts as running until end()."""
        for _ in range(MAX_TURNS):
            if not self._has_urgent_work():
                break
            await asyncio.sleep(0)
        await self._gate.begin(Rank.POD_CREATION if creates_pods else Rank.RECONCILE, MAX_WAIT_SECONDS)

    def end(self) -> None:
        """Count a reconcile as ended; those that wait begin if the limit permits it."""
        self._gate.end()
