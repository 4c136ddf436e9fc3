"""Eviction of preempted pods. Source: framework/preemption/executor.go of v1.36."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kubeloop.kube.errors import ApiError, Conflict, NotFound, ServerUnreachable
from kubeloop.kube.objects.resources import PODS
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.status_patches import STATUS_LANE, patch_status

if TYPE_CHECKING:
    from kubeloop.scheduler.cache.node_info import PodInfo
    from kubeloop.scheduler.metrics_protocol import CallResult

log = logging.getLogger(__name__)


class PreemptionExecutor:
    """Evicts the victims of preemptors: in background tasks, or while the scheduling cycle waits.

    `is_preempting` is true for a preemptor until its last victim is about to be deleted: the event of that deletion
    moves the preemptor to the active queue, so PreEnqueue must not reject it any more.
    """

    def __init__(self, handle: Handle, plugin: str) -> None:
        self._handle = handle
        self._plugin = plugin
        self._preempting: set[str] = set()  # UIDs of the preemptors whose victims are being evicted

    def is_preempting(self, uid: str) -> bool:
        return uid in self._preempting

    def forget(self, uid: str) -> None:
        self._preempting.discard(uid)

    def start(self, pod: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        """Evict `victims` from `node_name` for `pod`, in the background; returns at once."""
        self._preempting.add(pod.uid)
        self._handle.spawn(self._evict_all(pod, node_name, victims), f"preemption for {pod.key}")

    async def run(self, pod: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> Exception | None:
        """Evict `victims` from `node_name` for `pod`; return the first error. Cancellation: as in _evict_all()."""
        error: Exception | None = None
        try:
            async with asyncio.TaskGroup() as evicting:  # as in kube-scheduler, a failure cancels the others
                for victim in victims:
                    evicting.create_task(self._evict(pod, node_name, victim), name=f"evict {victim.key}")
        except* (ApiError, ServerUnreachable) as failures:
            error = failures.exceptions[0]
        if error is not None:
            return error
        try:
            await self._clear_lower_nominations(pod, node_name)
        except (ApiError, ServerUnreachable) as problem:  # the nominated pods are only rescheduled later
            log.warning("cannot clear nominations", extra={"pod": pod.key, "node": node_name, "error": str(problem)})
        return None

    async def _evict_all(self, pod: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        """Evict the victims. Cancellation: some may be evicted already; the pod's next attempt sees that."""
        started_ns = self._handle.clock.time_ns()
        result: CallResult = "success"
        try:
            await self._clear_lower_nominations(pod, node_name)
            *others, last = victims
            async with asyncio.TaskGroup() as evicting:  # as in kube-scheduler, a failure cancels the others
                for victim in others:
                    evicting.create_task(self._evict(pod, node_name, victim), name=f"evict {victim.key}")
            self._preempting.discard(pod.uid)
            if any(map(self._exists, victims)):
                await self._evict(pod, node_name, last)
            else:  # deleted by others; PreEnqueue rejected the pod when these events moved it
                self._handle.activate([pod.pod])
        except* (ApiError, ServerUnreachable) as failures:
            result = "error"
            error = str(failures.exceptions[0])
            log.warning("preemption failed", extra={"pod": pod.key, "node": node_name, "error": error})
            self._preempting.discard(pod.uid)
            self._handle.activate([pod.pod])  # no deletion event may follow that would queue it
        finally:
            self._preempting.discard(pod.uid)
        if self._handle.metrics is not None:
            self._handle.metrics.victims_evicted(result, (self._handle.clock.time_ns() - started_ns) / 1e9)

    def _exists(self, victim: PodInfo) -> bool:
        """Return True if the cache has the victim, so that the event of its deletion is still to come."""
        cached = self._handle.listers.pods.get(victim.key)
        return cached is not None and cached.metadata.uid == victim.uid

    async def _clear_lower_nominations(self, pod: PodInfo, node_name: str) -> None:
        """Clear nominations of lower-priority pods to this node, so that these pods are scheduled elsewhere."""
        api_cacher = self._handle.api_cacher
        for other in self._handle.nominator.pods_on(node_name):
            if other.priority >= pod.priority:
                continue
            if api_cacher is not None:
                api_cacher.patch_pod_status(other.pod, nominated_node_name="")
            elif other.pod.status.nominated_node_name:
                await self._patch_status(other, {"nominatedNodeName": None})

    async def _evict(self, pod: PodInfo, node_name: str, victim: PodInfo) -> None:
        """Stop the victim's binding, or mark it as disrupted and delete it. Raises ApiError, ServerUnreachable."""
        message = f"Preempted by pod {pod.uid} on node {node_name}"
        if self._handle.preempt_unbound(victim.uid, self._plugin):
            message += " (in kube-scheduler memory)."
            log.info("stopped the binding of a pod", extra={"pod": victim.key, "preemptor": pod.key, "node": node_name})
        elif victim.pod.metadata.deletion_timestamp is not None:
            return  # already being deleted, and not by this preemption
        else:
            patched = await self._patch_status(victim, {"conditions": [self._disruption_target(pod, victim)]})
            if not patched or not await self._delete(victim):
                return  # already deleted
            log.info("preempted a pod", extra={"pod": victim.key, "preemptor": pod.key, "node": node_name})
        self._handle.recorder.event(victim.pod, "Normal", "Preempted", message, action="Preempting")

    def _disruption_target(self, pod: PodInfo, victim: PodInfo) -> dict[str, Any]:
        return {
            "type": "DisruptionTarget",
            "status": "True",
            "observedGeneration": victim.pod.metadata.generation,
            "reason": "PreemptionByScheduler",
            "message": f"{pod.pod.spec.scheduler_name}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": self._handle.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    async def _patch_status(self, pod: PodInfo, status: dict[str, Any]) -> bool:
        """Return False if the pod no longer exists, or another pod has its name."""
        with contextlib.suppress(NotFound, Conflict):
            await patch_status(self._handle.client, pod.pod, status)
            return True
        return False

    async def _delete(self, pod: PodInfo) -> bool:
        """Return False if the pod no longer existed."""
        metadata = pod.pod.metadata
        with contextlib.suppress(NotFound, Conflict):
            await self._handle.client.delete(
                PODS, metadata.name, metadata.namespace, precondition_uid=metadata.uid, lane=STATUS_LANE
            )
            return True
        return False
