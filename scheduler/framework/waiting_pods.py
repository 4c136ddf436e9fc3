"""Pods that have a node and are not bound yet: they wait on permit, or their PreBind plugins run.

Source: waiting_pods_map.go, pods_in_prebind_map.go of v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

from kubeloop.kube.values.durations import duration_text
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo


class PodWaitingOnPermit:
    """Allowed once every plugin that returned Wait has allowed it; the first rejection or timeout rejects it."""

    def __init__(self, pod: PodInfo, waits: Mapping[str, float]) -> None:
        """waits: plugin -> timeout in seconds. Requires a running event loop."""
        self.pod = pod
        self.timeout_seconds = min(waits.values(), default=0.0)
        self._pending = set(waits)
        loop = asyncio.get_running_loop()
        self._started_at = loop.time()
        self._decision: asyncio.Future[Status | None] = loop.create_future()
        self._timers = [loop.call_later(seconds, self._time_out, plugin, seconds) for plugin, seconds in waits.items()]

    @property
    def pending_plugins(self) -> frozenset[str]:
        """The plugins that have not allowed the pod yet."""
        return frozenset(self._pending)

    @property
    def waited_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._started_at

    def allow(self, plugin: str) -> None:
        self._pending.discard(plugin)
        if not self._pending:
            self._decide(None)

    def reject(self, plugin: str, message: str) -> None:
        self._decide(Status(Code.UNSCHEDULABLE, (message,), plugin))

    def preempt(self, plugin: str) -> bool:
        """End the wait with an error, so that the pod is retried after a backoff; return False if it is decided."""
        return self._decide(Status(Code.ERROR, ("waiting on permit for pod: preempted",), plugin))

    async def decision(self) -> Status | None:
        """Wait until the pod is allowed (None) or rejected. Cancellation: the timers are stopped."""
        try:
            return await self._decision
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop the timers."""
        for timer in self._timers:
            timer.cancel()

    def _time_out(self, plugin: str, seconds: float) -> None:
        self.reject(plugin, f"rejected due to timeout after waiting {duration_text(seconds)} at plugin {plugin}")

    def _decide(self, status: Status | None) -> bool:
        if self._decision.done():
            return False
        self._decision.set_result(status)
        return True


class _PreBind:
    """The PreBind phase of one pod. A preemptor can cancel it until it ends."""

    def __init__(self) -> None:
        self._scope = asyncio.timeout(None)
        self._reason = ""

    async def run(self, plugins: Awaitable[Status | None]) -> Status | None:
        """Run the PreBind plugins; return their status, or an error if the phase is cancelled."""
        status: Status | None = None
        try:
            async with self._scope:
                status = await plugins
        except TimeoutError:
            if not self._reason:
                raise
        return Status(Code.ERROR, (self._reason,)) if self._reason else status

    def cancel(self, reason: str) -> None:
        """Cancel the plugins. Requires that run() is active."""
        if not self._reason:
            self._reason = reason
            self._scope.reschedule(asyncio.get_running_loop().time())


class WaitingPods:
    """The pods of all profiles that wait on permit or whose PreBind plugins run, by UID."""

    def __init__(self) -> None:
        self._pods: dict[str, PodWaitingOnPermit] = {}
        self._pre_binds: dict[str, _PreBind] = {}

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

    def remove(self, uid: str) -> None:
        """Remove a pod that no longer waits for a decision, because its binding failed before."""
        waiting_pod = self._pods.pop(uid, None)
        if waiting_pod is not None:
            waiting_pod.stop()

    async def run_pre_bind(self, uid: str, plugins: Awaitable[Status | None]) -> Status | None:
        """Run the PreBind plugins of a pod; preempt() cancels them."""
        self._pre_binds[uid] = pre_bind = _PreBind()
        try:
            return await pre_bind.run(plugins)
        finally:
            del self._pre_binds[uid]

    def preempt(self, uid: str, plugin: str) -> bool:
        """Stop the binding of a pod, which is retried after a backoff; return False if it is too late for that."""
        waiting_pod = self._pods.get(uid)
        if waiting_pod is not None:
            return waiting_pod.preempt(plugin)
        pre_bind = self._pre_binds.get(uid)
        if pre_bind is None:
            return False
        pre_bind.cancel(f"preempted by {plugin}")
        return True

    def reject_removed(self, uid: str) -> bool:
        """Reject a waiting pod that was deleted; return False if it does not wait."""
        waiting_pod = self._pods.get(uid)
        if waiting_pod is None:
            return False
        waiting_pod.reject("", "removed")
        return True
