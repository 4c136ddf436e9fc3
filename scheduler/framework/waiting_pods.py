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


class WaitingPods:
    """The pods of all profiles that wait on permit, by UID."""

    def __init__(self) -> None:
        self._pods: dict[str, PodWaitingOnPermit] = {}

    def add(self, pod: PodInfo, waits: Mapping[str, float]) -> None:
        """waits: plugin -> timeout in seconds."""
        self._pods[pod.uid] = PodWaitingOnPermit(pod, waits)

    def get(self, uid: str) -> PodWaitingOnPermit | None:
        return self._pods.get(uid)

    async def decision(self, uid: str) -> Status | None:
        """Wait until the pod is allowed (None), rejected or timed out. Returns at once if it does not wait.

        Cancellation: the pod no longer waits.
        """
        waiting_pod = self._pods.get(uid)
        if waiting_pod is None:
            return None
        try:
            return await waiting_pod.decision()
        finally:
            self._pods.pop(uid, None)

    def reject_removed(self, uid: str) -> bool:
        """Reject a waiting pod that was deleted; return False if it does not wait."""
        waiting_pod = self._pods.get(uid)
        if waiting_pod is None:
            return False
        waiting_pod.reject("", "removed")
        return True
