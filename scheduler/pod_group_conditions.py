"""The condition PodGroupScheduled of PodGroups, written in the background after each scheduling cycle of a group.

Source: updatePodGroupCondition of pkg/scheduler/schedule_one_podgroup.go, v1.36.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

import msgspec

from kubeloop.kube.client.api_client import Client, PatchType
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import POD_GROUPS
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.api.listers import Lister

log = logging.getLogger(__name__)

CONDITION_TYPE = "PodGroupScheduled"
_ATTEMPTS = 4
_FIRST_RETRY_SECONDS = 0.01
_RETRY_FACTOR = 5


class GroupCondition(msgspec.Struct, frozen=True):
    """status: "True" or "False". reason: "Scheduled", "Unschedulable" or "SchedulerError"."""

    status: str
    reason: str
    message: str


def new_condition(pod_group: PodGroup, condition: GroupCondition, now: datetime) -> JSON | None:
    """Return the condition as API object; None if the PodGroup has it already, or was scheduled once: it stays True."""
    current = next((entry for entry in pod_group.status.conditions if entry.type == CONDITION_TYPE), None)
    since = now
    generation = pod_group.metadata.generation
    if current is not None:
        if current.status == "True" and condition.status != "True":
            return None
        if (current.status, current.reason, current.message, current.observed_generation) == (
            *msgspec.structs.astuple(condition),
            generation,
        ):
            return None
        if current.status == condition.status:
            since = current.last_transition_time or now
    return {
        "type": CONDITION_TYPE,
        "status": condition.status,
        "observedGeneration": generation,
        "lastTransitionTime": rfc3339(since),
        "reason": condition.reason,
        "message": condition.message,
    }


class PodGroupConditions:
    """Writes conditions; for each PodGroup the newest one, and one request at a time. pod_groups: the informer's."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        pod_groups: Lister[PodGroup],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        """spawn(work, name): runs a coroutine in the background."""
        self._client = client
        self._clock = clock
        self._pod_groups = pod_groups
        self._spawn = spawn
        self._pending: dict[str, GroupCondition] = {}  # by "namespace/name"
        self._writing: set[str] = set()  # "namespace/name" of the PodGroups whose conditions are being written

    def set(self, key: str, condition: GroupCondition) -> None:
        """Request the condition of the PodGroup "namespace/name"; does not wait for it."""
        self._pending[key] = condition
        if key not in self._writing:
            self._writing.add(key)
            self._spawn(self._write(key), f"pod-group-status/{key}")

    async def _write(self, key: str) -> None:
        try:
            while (condition := self._pending.pop(key, None)) is not None:
                pod_group = self._pod_groups.get(key)
                if pod_group is None:
                    log.warning("no PodGroup to write a condition of", extra={"pod_group": key})
                    continue
                entry = new_condition(pod_group, condition, self._clock.now())
                if entry is not None:
                    await self._patch(pod_group, entry)
        finally:
            self._writing.discard(key)

    async def _patch(self, pod_group: PodGroup, entry: JSON) -> None:
        metadata, delay_seconds = pod_group.metadata, _FIRST_RETRY_SECONDS
        body = {"metadata": {"uid": metadata.uid}, "status": {"conditions": [entry]}}
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._client.patch(
                    POD_GROUPS, metadata.name, body, PatchType.STRATEGIC, metadata.namespace, subresource="status"
                )
                return
            except NotFound:
                return  # deleted
            except (ApiError, ServerUnreachable) as error:
                retriable = isinstance(error, ServerUnreachable) or error.code >= 500
                if attempt == _ATTEMPTS or not retriable:
                    extra = {"pod_group": pod_group.key, "error": str(error)}
                    log.warning("cannot write the condition of a PodGroup", extra=extra)
                    return
            await asyncio.sleep(delay_seconds)
            delay_seconds *= _RETRY_FACTOR
