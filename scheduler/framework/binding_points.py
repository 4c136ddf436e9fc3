"""The extension points that a pod passes once it has a node: reserve, permit, pre-bind, bind.

Source: pkg/scheduler/framework/runtime of v1.36.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import cast

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import (
    BindPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.plugin_calls import named, raised, status_of
from kubeloop.scheduler.framework.timing import Timing, awaited_observed, observed
from kubeloop.scheduler.framework.waiting_pods import PodWaitingOnPermit

log = logging.getLogger(__name__)

_LONGEST_PERMIT_SECONDS = 15 * 60.0


def _failure(point: str, plugin: Plugin, status: Status) -> Status:
    """How the pod fails at `point`: by the plugin's rejection, or by an error for everything else it may answer."""
    if status.is_rejection:
        return named(status, plugin.name)
    text = f'running {point} plugin "{plugin.name}": {status.message}'
    return Status(Code.ERROR, (text,), plugin.name, status.error)


class BindingPoints:
    """The plugins of one profile from Reserve on. waiting: by UID, the pods that wait for a permit."""

    def __init__(self, timing: Timing, points: Mapping[str, Sequence[Plugin]]) -> None:
        self.timing = timing
        self.waiting: dict[str, PodWaitingOnPermit] = {}
        self._reserve = cast("list[ReservePlugin]", points["reserve"])
        self._permit = cast("list[PermitPlugin]", points["permit"])
        self._pre_bind = cast("list[PreBindPlugin]", points["preBind"])
        self._bind = cast("list[BindPlugin]", points["bind"])
        self._post_bind = cast("list[PostBindPlugin]", points["postBind"])

    @observed("Reserve")
    def run_reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """The first failure; the caller then runs run_unreserve."""
        for plugin in self._reserve:
            try:
                status = status_of(self.timing.plugin("Reserve", plugin, plugin.reserve, state, pod, node_name))
            except Exception as error:
                status = raised(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                continue
            return _failure("Reserve", plugin, status)
        return None

    @observed("Unreserve")
    def run_unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """All Reserve plugins in reverse order, those that were not reached as well."""
        for plugin in reversed(self._reserve):
            try:
                self.timing.plugin("Unreserve", plugin, plugin.unreserve, state, pod, node_name)
            except Exception:  # the others must still be undone
                log.exception("Unreserve failed", extra={"plugin": plugin.name, "pod": pod.key})

    @observed("Permit")
    def run_permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """None: go on. Code.WAIT: the pod waits, see wait_on_permit. Else a rejection or an error."""
        waits: dict[str, float] = {}
        for plugin in self._permit:
            seconds = 0.0
            try:
                answer, seconds = self.timing.plugin("Permit", plugin, plugin.permit, state, pod, node_name)
                status = status_of(answer)
                seconds = min(float(seconds), _LONGEST_PERMIT_SECONDS)
            except Exception as error:
                status = raised(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                continue
            if status.code is not Code.WAIT:
                return _failure("Permit", plugin, status)
            waits[plugin.name] = seconds
        if not waits:
            return None
        self.waiting[pod.uid] = PodWaitingOnPermit(pod, waits)
        return Status(
            Code.WAIT, (f'one or more plugins asked to wait and no plugin rejected pod "{pod.pod.metadata.name}"',)
        )

    async def wait_on_permit(self, pod: PodInfo) -> Status | None:
        """Until the pod is allowed (None), rejected or its time is over. At once if it does not wait.

        Cancellation: the pod no longer waits.
        """
        waiting = self.waiting.get(pod.uid)
        if waiting is None:
            return None
        try:
            return await waiting.decision()
        finally:
            self.waiting.pop(pod.uid, None)

    def waiting_pod(self, uid: str) -> PodWaitingOnPermit | None:
        return self.waiting.get(uid)

    def reject_waiting_pod(self, uid: str) -> bool:
        """False: it does not wait."""
        waiting = self.waiting.get(uid)
        if waiting is None:
            return False
        waiting.reject("", "removed")
        return True

    @observed("PreBindPreFlight")
    def run_pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """None: some PreBind plugin has work to do. Code.SKIP: none has."""
        has_work = False
        for plugin in self._pre_bind:
            try:
                flight = plugin.pre_bind_pre_flight
                status = status_of(self.timing.plugin("PreBindPreFlight", plugin, flight, state, pod, node_name))
            except Exception as error:
                status = raised(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                has_work = True
            elif status.code is Code.SKIP:
                state.skip_pre_bind.add(plugin.name)
            else:
                text = f'running PreBindPreFlight "{plugin.name}": {status.message}'
                return Status(Code.ERROR, (text,), plugin.name, status.error)
        return None if has_work else Status(Code.SKIP)

    @awaited_observed("PreBind")
    async def run_pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """The first failure."""
        for plugin in self._pre_bind:
            if plugin.name in state.skip_pre_bind:
                continue
            try:
                status = status_of(
                    await self.timing.awaited_plugin("PreBind", plugin, plugin.pre_bind, state, pod, node_name)
                )
            except Exception as error:
                status = raised(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                continue
            return _failure("PreBind", plugin, status)
        return None

    @awaited_observed("Bind")
    async def run_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """By the first bind plugin that takes the pod. None: it is bound."""
        for plugin in self._bind:
            try:
                status = status_of(await self.timing.awaited_plugin("Bind", plugin, plugin.bind, state, pod, node_name))
            except Exception as error:
                status = raised(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                return None
            if status.code is Code.SKIP:
                continue
            return _failure("Bind", plugin, status)
        return Status(Code.ERROR, ("no bind plugin took the pod",))

    @observed("PostBind")
    def run_post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        for plugin in self._post_bind:
            try:
                self.timing.plugin("PostBind", plugin, plugin.post_bind, state, pod, node_name)
            except Exception:  # the pod is bound, whatever a plugin thinks of it
                log.exception("PostBind failed", extra={"plugin": plugin.name, "pod": pod.key})
