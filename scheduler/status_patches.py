"""Patches of pod status, sent in the background: the PodScheduled condition and the nominated node.

Only the newest status of a pod is pending, and one patch per pod is in progress: an unreachable API server costs one
entry per pod, and the newest status is written last. The patches use a request lane of their own, so that bindings do
not wait for them, except the binding of the same pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from kubeloop.kube.client.api_client import Client, PatchType
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import PODS
from kubeloop.scheduler.background_calls import BackgroundCalls

log = logging.getLogger(__name__)

WORKERS = 8
STATUS_LANE = "status"  # client lane of lower precedence than bindings


async def patch_status(client: Client, pod: Pod, status: dict[str, Any]) -> None:
    """Send a strategic merge patch of the pod's status. Raises Conflict if another pod has its name."""
    metadata = pod.metadata
    await client.patch(
        PODS,
        metadata.name,
        {"metadata": {"uid": metadata.uid}, "status": status},
        PatchType.STRATEGIC,
        metadata.namespace,
        subresource="status",
    )


class StatusPatches:
    """Pending status patches. set() never waits; run() sends them until cancelled."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        calls: BackgroundCalls,
        *,
        enter_span: Callable[[Pod], object] = lambda pod: None,
    ) -> None:
        """`enter_span`: makes the pod's span the current one, for the patch."""
        self._client = client
        self._calls = calls
        self._enter_span = enter_span
        self._clock = clock
        self._pending: dict[str, tuple[Pod, dict[str, Any]]] = {}  # by UID, oldest first
        self._in_progress: dict[str, asyncio.Event] = {}  # by UID, of the patches in progress; set when finished
        self._work = asyncio.Event()

    def __len__(self) -> int:
        return len(self._pending)

    def set(self, pod: Pod, *, reason: str = "", message: str = "", nominated_node_name: str | None = None) -> None:
        """Request the condition PodScheduled=False with `reason` and `message`, and the nominated node.

        reason "": no condition. nominated_node_name "": clear it; None: leave it. What `pod` has already is not sent.
        """
        status: dict[str, Any] = {}
        if reason:
            condition = self._condition(pod, reason, message)
            if condition is not None:
                status["conditions"] = [condition]
        if nominated_node_name is not None and nominated_node_name != pod.status.nominated_node_name:
            status["nominatedNodeName"] = nominated_node_name or None
        current = self._pending.pop(pod.metadata.uid, None)
        if current is not None:
            status = current[1] | status
        if status:
            self._pending[pod.metadata.uid] = pod, status
            self._work.set()
        self._report_pending()

    def _report_pending(self) -> None:
        self._calls.pending("pod_status_patch", len(self._pending))

    def _condition(self, pod: Pod, reason: str, message: str) -> dict[str, Any] | None:
        current = next((condition for condition in pod.status.conditions if condition.type == "PodScheduled"), None)
        if current is not None and (current.status, current.reason, current.message) == ("False", reason, message):
            return None
        since = self._clock.now()
        if current is not None and current.status == "False" and current.last_transition_time is not None:
            since = current.last_transition_time
        condition: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": rfc3339(since),
            "reason": reason,
            "message": message,
        }
        if pod.metadata.generation:  # 0: a server before v1.33, which has neither field
            condition["observedGeneration"] = pod.metadata.generation
        return condition

    async def run(self) -> None:
        """Send patches until cancelled.

        Cancellation: pending patches are dropped; the next attempt of the pod requests them again.
        """
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(self._send_forever(), name=f"pod-status/{number}")

    async def settle(self, uid: str) -> None:
        """Drop the pending patch of a pod that is about to be bound, and wait for one in progress.

        Written later, it would say that a bound pod cannot be scheduled. Cancellation: safe.
        """
        if self._pending.pop(uid, None) is not None:
            self._report_pending()
        finished = self._in_progress.get(uid)
        if finished is not None:
            await finished.wait()

    async def _send_forever(self) -> None:
        while True:
            uid = next((uid for uid in self._pending if uid not in self._in_progress), None)
            if uid is None:
                self._work.clear()
                await self._work.wait()
                continue
            pod, status = self._pending.pop(uid)
            self._report_pending()
            finished = self._in_progress[uid] = asyncio.Event()
            try:
                await self._send(pod, status)
            finally:
                del self._in_progress[uid]
                finished.set()
                if uid in self._pending:
                    self._work.set()

    async def _send(self, pod: Pod, status: dict[str, Any]) -> None:
        self._enter_span(pod)
        try:
            with self._calls.sending("pod_status_patch"):
                await patch_status(self._client, pod, status)
        except NotFound:
            log.debug("a pod was deleted before its status was written", extra={"pod": pod.key})
        except (ApiError, ServerUnreachable) as error:
            log.warning("cannot write a pod's status", extra={"pod": pod.key, "error": str(error)})
