"""Pods that wait on permit: they have a node, and are bound once allowed. Source: waiting_pods_map.go of v1.36."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo


class PodWaitingOnPermit:
    """Allowed once every plugin that returned Wait has allowed it; the first rejection or timeout rejects it."""

    def __init__(self, pod: PodInfo, waits: Mapping[str, float]) -> None:
        """waits: plugin -> timeout in seconds. Requires a running event loop."""
        self.pod = pod
        self._pending = set(waits)
        loop = asyncio.get_running_loop()
        self._decision: asyncio.Future[Status | None] = loop.create_future()
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
        """Wait until the pod is allowed (None) or rejected. Cancellation: the timers are stopped."""
        try:
            return await self._decision
        finally:
            for timer in self._timers:
                timer.cancel()

    def _time_out(self, plugin: str, seconds: float) -> None:
        self.reject(plugin, f"timeout after {seconds:g}s")

    def _decide(self, status: Status | None) -> None:
        if not self._decision.done():
            self._decision.set_result(status)
