"""A pod that has a node and waits for a permit to be bound to it. Source: waiting_pods_map.go of v1.36."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo


class PodWaitingOnPermit:
    """Bound once every plugin that asked to wait has allowed it; the first rejection or time-out ends it."""

    def __init__(self, pod: PodInfo, waits: Mapping[str, float]) -> None:
        """waits: plugin -> how many seconds it waits at most. To be made inside a running event loop."""
        self.pod = pod
        self._pending = set(waits)
        loop = asyncio.get_running_loop()
        self._decided: asyncio.Future[Status | None] = loop.create_future()
        self._timers = [loop.call_later(seconds, self._time_out, plugin, seconds) for plugin, seconds in waits.items()]

    @property
    def pending_plugins(self) -> frozenset[str]:
        """The plugins that have not allowed the pod yet."""
        return frozenset(self._pending)

    def allow(self, plugin: str) -> None:
        self._pending.discard(plugin)
        if not self._pending:
            self._decide(None)

    def reject(self, plugin: str, message: str) -> None:
        self._decide(
            Status(
                Code.UNSCHEDULABLE,
                (f'pod "{self.pod.pod.metadata.name}" rejected while waiting on permit: {message}',),
                plugin,
            )
        )

    async def decision(self) -> Status | None:
        """None once allowed; else the rejection. Cancellation: the timers are stopped."""
        try:
            return await self._decided
        finally:
            for timer in self._timers:
                timer.cancel()

    def _time_out(self, plugin: str, seconds: float) -> None:
        self.reject(plugin, f"timeout after {seconds:g}s")

    def _decide(self, status: Status | None) -> None:
        if not self._decided.done():
            self._decided.set_result(status)
