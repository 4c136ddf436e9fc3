"""Patches of pod status, sent in the background: the PodScheduled condition and the nominated node.

Of one pod only the newest wish is sent, and one at a time: an unreachable API server costs one entry per pod, and the
last word is the newest. They travel on a lane of their own: no binding waits for them, but for that of the pod itself.
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

log = logging.getLogger(__name__)

WORKERS = 8


class StatusPatches:
    """set() never waits; run() sends until cancelled."""

    def __init__(self, client: Client, clock: Clock, *, traceparent_of: Callable[[Pod], str] = lambda pod: "") -> None:
        self._client = client
        self._traceparent_of = traceparent_of
        self._clock = clock
        self._wanted: dict[str, tuple[Pod, dict[str, Any]]] = {}  # by UID, oldest wish first
        self._sent: dict[str, asyncio.Event] = {}  # by UID, of the patches that are under way: set once they are not
        self._work = asyncio.Event()

    def __len__(self) -> int:
        return len(self._wanted)

    def set(self, pod: Pod, *, reason: str = "", message: str = "", nominated_node_name: str | None = None) -> None:
        """Wish for the condition PodScheduled=False with `reason` and `message` (none if both are empty), and for the
        nominated node ("" clears it, None leaves it). Nothing is sent for what `pod` already says."""
        status: dict[str, Any] = {}
        if reason:
            condition = self._condition(pod, reason, message)
            if condition is not None:
                status["conditions"] = [condition]
        if nominated_node_name is not None and nominated_node_name != pod.status.nominated_node_name:
            status["nominatedNodeName"] = nominated_node_name or None
        known = self._wanted.pop(pod.metadata.uid, None)
        if known is not None:
            status = known[1] | status
        if status:
            self._wanted[pod.metadata.uid] = pod, status
            self._work.set()

    def _condition(self, pod: Pod, reason: str, message: str) -> dict[str, Any] | None:
        known = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
        if known is not None and (known.status, known.reason, known.message) == ("False", reason, message):
            return None
        since = self._clock.now()
        if known is not None and known.status == "False" and known.last_transition_time is not None:
            since = known.last_transition_time
        condition: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": rfc3339(since),
            "reason": reason,
            "message": message,
        }
        if pod.metadata.generation:  # 0: a server before v1.33, which knows neither
            condition["observedGeneration"] = pod.metadata.generation
        return condition

    async def run(self) -> None:
        """Cancellation: wishes not yet sent are dropped; the next attempt of the pod renews them."""
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(self._send_forever(), name=f"pod-status/{number}")

    async def settle(self, uid: str) -> None:
        """Before the pod is bound: drop the wish, and wait for a patch that is under way. Written later, it would say
        that a bound pod cannot be scheduled. Cancellation: safe."""
        self._wanted.pop(uid, None)
        sent = self._sent.get(uid)
        if sent is not None:
            await sent.wait()

    async def _send_forever(self) -> None:
        while True:
            uid = next((uid for uid in self._wanted if uid not in self._sent), None)
            if uid is None:
                self._work.clear()
                await self._work.wait()
                continue
            pod, status = self._wanted.pop(uid)
            sent = self._sent[uid] = asyncio.Event()
            try:
                await self._send(pod, status)
            finally:
                del self._sent[uid]
                sent.set()
                if uid in self._wanted:
                    self._work.set()

    async def _send(self, pod: Pod, status: dict[str, Any]) -> None:
        metadata = pod.metadata
        traceparent = self._traceparent_of(pod)
        try:
            await self._client.patch(
                PODS,
                metadata.name,
                {"metadata": {"uid": metadata.uid}, "status": status},
                PatchType.STRATEGIC,
                metadata.namespace,
                subresource="status",
                headers={"traceparent": traceparent} if traceparent else None,
                lane="status",
            )
        except NotFound:
            log.debug("a pod is gone before its status was written", extra={"pod": pod.key})
        except (ApiError, ServerUnreachable) as error:
            log.warning("cannot write a pod's status", extra={"pod": pod.key, "error": str(error)})
