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

from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.object_fields import condition_of
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
    current = condition_of(pod_group.status.conditions, CONDITION_TYPE)
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
    """Writes conditions; for each PodGroup the newest one, unless it was scheduled before, and one request at a time.

    pod_groups: the informer's.
    """

    def __init__(
        self,
        client: ApiClient,
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
        # UIDs of the PodGroups that have the condition True, which the cache may not show yet, by "namespace/name".
        self._scheduled: dict[str, str] = {}

    def set(self, key: str, condition: GroupCondition) -> None:
        """Request the condition of the PodGroup "namespace/name"; does not wait for it."""
        pending = self._pending.get(key)
        if pending is None or pending.status != "True":
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
                uid = pod_group.metadata.uid
                if condition.status != "True" and self._scheduled.get(key) == uid:
                    continue
                entry = new_condition(pod_group, condition, self._clock.now())
                if entry is not None and await self._patch(pod_group, entry) and condition.status == "True":
                    remaining = {it: self._scheduled[it] for it in self._scheduled if self._is_behind(it)}
                    self._scheduled = {**remaining, key: uid}
        finally:
            self._writing.discard(key)

    def _is_behind(self, key: str) -> bool:
        """Return True if the cached PodGroup does not have its condition True yet."""
        pod_group = self._pod_groups.get(key)
        if pod_group is None or pod_group.metadata.uid != self._scheduled[key]:
            return False
        condition = condition_of(pod_group.status.conditions, CONDITION_TYPE)
        return condition is None or condition.status != "True"

    async def _patch(self, pod_group: PodGroup, entry: JSON) -> bool:
        """Write a condition; return False if that fails, or the PodGroup is deleted."""
        metadata, delay_seconds = pod_group.metadata, _FIRST_RETRY_SECONDS
        body = {"metadata": {"uid": metadata.uid}, "status": {"conditions": [entry]}}
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._client.patch(
                    POD_GROUPS, metadata.name, body, PatchType.STRATEGIC, metadata.namespace, subresource="status"
                )
                return True
            except NotFound:
                break
            except (ApiError, ServerUnreachable) as error:
                retriable = isinstance(error, ServerUnreachable) or error.code >= 500
                if attempt == _ATTEMPTS or not retriable:
                    extra = {"pod_group": pod_group.key, "error": str(error)}
                    log.warning("cannot write the condition of a PodGroup", extra=extra)
                    break
            await asyncio.sleep(delay_seconds)
            delay_seconds *= _RETRY_FACTOR
        return False
