"""Eviction of preempted pods. Source: framework/preemption/executor.go of v1.36."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Sequence
from typing import Any

import msgspec

from kubeloop.kube.clock import rfc3339
from kubeloop.kube.errors import ApiError, Conflict, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import PODS
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api_calls.status_patches import STATUS_LANE, patch_status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.metrics import CallResult

log = logging.getLogger(__name__)


class Preemptor(msgspec.Struct, frozen=True):
    """A pod or pod group that victims are evicted for. pods: those that are scheduled afterwards. obj: pod or group."""

    kind: str
    uid: str
    key: str
    priority: int
    pods: Sequence[Pod]
    obj: Pod | PodGroup

    @classmethod
    def of_pod(cls, pod: PodInfo) -> Preemptor:
        return cls("pod", pod.uid, pod.key, pod.priority, (pod.pod,), pod.pod)

    @classmethod
    def of_group(cls, group: PodGroup, pods: Sequence[Pod]) -> Preemptor:
        """pods: at least one."""
        return cls("podgroup", group.metadata.uid, group.key, group.spec.priority or 0, pods, group)


class PreemptionExecutor:
    """Evicts the victims of preemptors: in background tasks, or while the scheduling cycle waits.

    `rejects` is true for a preemptor until its last victim is about to be deleted: the event of that deletion moves the
    preemptor to the active queue, so PreEnqueue must not reject it any more.
    """

    def __init__(self, handle: Handle, plugin: str) -> None:
        self._handle = handle
        self._plugin = plugin
        self._preempting: set[str] = set()  # UIDs of the preemptors whose victims are being evicted
        self._rejected: set[str] = set()  # UIDs of those for which `rejects` returned True since the eviction began

    def rejects(self, uid: str) -> bool:
        """Return True if PreEnqueue must reject the preemptor, because its victims are being evicted."""
        if uid not in self._preempting:
            return False
        self._rejected.add(uid)
        return True

    def forget(self, uid: str) -> None:
        self._preempting.discard(uid)
        self._rejected.discard(uid)

    def start(self, preemptor: Preemptor, node_name: str, victims: Sequence[PodInfo]) -> None:
        """Evict `victims` from `node_name` for `preemptor`, in the background; returns at once.

        No effect if all are being deleted already; then pods of lower priority stay nominated to the node.
        """
        remaining = [victim for victim in victims if victim.pod.metadata.deletion_timestamp is None]
        if not remaining:
            return
        self._handle.metrics.preemption_victims(len(victims))
        self._preempting.add(preemptor.uid)
        self._rejected.discard(preemptor.uid)
        self._handle.spawn(self._evict_all(preemptor, node_name, remaining), f"preemption for {preemptor.key}")

    async def run(self, preemptor: Preemptor, node_name: str, victims: Sequence[PodInfo]) -> Exception | None:
        """Evict `victims` from `node_name`; return the first error. Cancellation: as in _evict_all()."""
        self._handle.metrics.preemption_victims(len(victims))
        error: Exception | None = None
        try:
            async with asyncio.TaskGroup() as evicting:  # as in kube-scheduler, a failure cancels the others
                for victim in victims:
                    evicting.create_task(self._evict(preemptor, node_name, victim), name=f"evict {victim.key}")
        except* (ApiError, ServerUnreachable) as failures:
            error = failures.exceptions[0]
        if error is not None:
            return error
        try:
            await self._clear_lower_nominations(preemptor, node_name)
        except (ApiError, ServerUnreachable) as problem:  # the nominated pods are only rescheduled later
            fields = {"preemptor": preemptor.key, "node": node_name, "error": str(problem)}
            log.warning("cannot clear nominations", extra=fields)
        return None

    async def _evict_all(self, preemptor: Preemptor, node_name: str, victims: Sequence[PodInfo]) -> None:
        """Evict the victims. Cancellation: some may be evicted already; the pod's next attempt sees that."""
        started_ns = self._handle.clock.time_ns()
        result: CallResult = "success"
        try:
            await self._clear_lower_nominations(preemptor, node_name)
            *others, last = victims
            async with asyncio.TaskGroup() as evicting:  # as in kube-scheduler, a failure cancels the others
                for victim in others:
                    evicting.create_task(self._evict(preemptor, node_name, victim), name=f"evict {victim.key}")
            self._preempting.discard(preemptor.uid)
            if any(map(self._exists, victims)):
                await self._evict(preemptor, node_name, last)
            elif preemptor.uid in self._rejected:  # others deleted the victims, and no event is to come
                self._handle.activate(preemptor.pods)
        except* (ApiError, ServerUnreachable) as failures:
            result = "error"
            error = str(failures.exceptions[0])
            log.warning("preemption failed", extra={"preemptor": preemptor.key, "node": node_name, "error": error})
            self._preempting.discard(preemptor.uid)
            self._handle.activate(preemptor.pods)  # no deletion event may follow that would queue it
        finally:
            self.forget(preemptor.uid)
        self._handle.metrics.victims_evicted(result, (self._handle.clock.time_ns() - started_ns) / 1e9)

    def _exists(self, victim: PodInfo) -> bool:
        """Return True if the cache has the victim, so that the event of its deletion is still to come."""
        cached = self._handle.listers.pods.get(victim.key)
        return cached is not None and cached.metadata.uid == victim.uid

    async def _clear_lower_nominations(self, preemptor: Preemptor, node_name: str) -> None:
        """Clear nominations of lower-priority pods to this node, so that these pods are scheduled elsewhere."""
        api_cacher = self._handle.api_cacher
        for other in self._handle.nominator.pods_on(node_name):
            if other.priority >= preemptor.priority:
                continue
            if api_cacher is not None:
                api_cacher.patch_pod_status(other.pod, nominated_node_name="")
            elif other.pod.status.nominated_node_name:
                await self._patch_status(other, {"nominatedNodeName": None})

    async def _evict(self, preemptor: Preemptor, node_name: str, victim: PodInfo) -> None:
        """Stop the victim's binding, or mark it as disrupted and delete it. Raises ApiError, ServerUnreachable."""
        message = f"Preempted by {preemptor.kind} {preemptor.uid} on node {node_name}"
        fields = {"pod": victim.key, "preemptor": preemptor.key, "node": node_name}
        if self._handle.preempt_unbound(victim.uid, self._plugin):
            message += " (in kube-scheduler memory)."
            log.info("stopped the binding of a pod", extra=fields)
        elif victim.pod.metadata.deletion_timestamp is not None:
            return  # already being deleted, and not by this preemption
        else:
            patched = await self._patch_status(victim, {"conditions": [self._disruption_target(preemptor, victim)]})
            if not patched or not await self._delete(victim):
                return  # already deleted
            log.info("preempted a pod", extra=fields)
        self._handle.recorder.event(
            victim.pod, "Normal", "Preempted", message, action="Preempting", related=preemptor.obj
        )

    def _disruption_target(self, preemptor: Preemptor, victim: PodInfo) -> dict[str, Any]:
        scheduler_name = preemptor.pods[0].spec.scheduler_name
        return {
            "type": "DisruptionTarget",
            "status": "True",
            "observedGeneration": victim.pod.metadata.generation,
            "reason": "PreemptionByScheduler",
            "message": f"{scheduler_name}: preempting to accommodate a higher priority {preemptor.kind}",
            "lastTransitionTime": rfc3339(self._handle.clock.now()),
        }

    async def _patch_status(self, pod: PodInfo, status: dict[str, Any]) -> bool:
        """Return False if the pod no longer exists, or another pod has its name."""
        return await self._is_applied(pod, patch_status(self._handle.client, pod.pod, status))

    async def _delete(self, pod: PodInfo) -> bool:
        """Return False if the pod no longer existed."""
        metadata = pod.pod.metadata
        delete = self._handle.client.delete(
            PODS, metadata.name, metadata.namespace, precondition_uid=metadata.uid, lane=STATUS_LANE
        )
        return await self._is_applied(pod, delete)

    async def _is_applied(self, pod: PodInfo, request: Awaitable[object]) -> bool:
        """Return False if the pod of a request no longer exists, or another pod has its name.

        Raises Conflict if the server has refused the request for another reason.
        """
        try:
            await request
            return True
        except NotFound:
            return False
        except Conflict:
            if await self._is_stored(pod):
                raise
            return False

    async def _is_stored(self, pod: PodInfo) -> bool:
        metadata = pod.pod.metadata
        with contextlib.suppress(NotFound):
            stored = await self._handle.client.get(PODS, metadata.name, metadata.namespace, lane=STATUS_LANE)
            return stored.metadata.uid == metadata.uid
        return False
