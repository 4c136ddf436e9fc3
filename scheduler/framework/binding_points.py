"""The extension points after a node is chosen: Reserve, Permit, PreBind, Bind and PostBind.

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
from kubeloop.scheduler.framework.plugin_calls import checked_status, status_of_exception, with_plugin_name
from kubeloop.scheduler.framework.timing import Timing, observed, observed_async
from kubeloop.scheduler.framework.waiting_pods import PodWaitingOnPermit

log = logging.getLogger(__name__)

_LONGEST_PERMIT_SECONDS = 15 * 60.0


def _failure(point: str, plugin: Plugin, status: Status) -> Status:
    """Return the plugin's rejection with its name, or an error for any other status at `point`."""
    if status.is_rejection:
        return with_plugin_name(status, plugin.name)
    text = f'running {point} plugin "{plugin.name}": {status.message}'
    return Status(Code.ERROR, (text,), plugin.name, status.error)


class BindingPoints:
    """The plugins of one profile from Reserve on. _waiting_pods: by UID, the pods that wait on permit."""

    def __init__(self, timing: Timing, points: Mapping[str, Sequence[Plugin]]) -> None:
        self.timing = timing
        self._waiting_pods: dict[str, PodWaitingOnPermit] = {}
        self._reserve = cast("list[ReservePlugin]", points["reserve"])
        self._permit = cast("list[PermitPlugin]", points["permit"])
        self._pre_bind = cast("list[PreBindPlugin]", points["preBind"])
        self._bind = cast("list[BindPlugin]", points["bind"])
        self._post_bind = cast("list[PostBindPlugin]", points["postBind"])

    @observed("Reserve")
    def run_reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Run the Reserve plugins; return the first failure. The caller then calls run_unreserve."""
        for plugin in self._reserve:
            try:
                status = checked_status(self.timing.plugin("Reserve", plugin, plugin.reserve, state, pod, node_name))
            except Exception as error:
                status = status_of_exception(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                continue
            return _failure("Reserve", plugin, status)
        return None

    @observed("Unreserve")
    def run_unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Run Unreserve of all Reserve plugins in reverse order, including those whose Reserve did not run."""
        for plugin in reversed(self._reserve):
            try:
                self.timing.plugin("Unreserve", plugin, plugin.unreserve, state, pod, node_name)
            except Exception:  # the other plugins must still be undone
                log.exception("Unreserve failed", extra={"plugin": plugin.name, "pod": pod.key})

    @observed("Permit")
    def run_permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Run the Permit plugins. None: allowed. Code.WAIT: the pod waits, see wait_on_permit. Else a failure."""
        waits: dict[str, float] = {}
        for plugin in self._permit:
            seconds = 0.0
            try:
                result, seconds = self.timing.plugin("Permit", plugin, plugin.permit, state, pod, node_name)
                status = checked_status(result)
                seconds = min(float(seconds), _LONGEST_PERMIT_SECONDS)
            except Exception as error:
                status = status_of_exception(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                continue
            if status.code is not Code.WAIT:
                return _failure("Permit", plugin, status)
            waits[plugin.name] = seconds
        if not waits:
            return None
        self._waiting_pods[pod.uid] = PodWaitingOnPermit(pod, waits)
        return Status(
            Code.WAIT, (f'one or more plugins asked to wait and no plugin rejected pod "{pod.pod.metadata.name}"',)
        )

    async def wait_on_permit(self, pod: PodInfo) -> Status | None:
        """Wait until the pod is allowed (None), rejected or timed out. Returns at once if it does not wait.

        Cancellation: the pod no longer waits.
        """
        waiting_pod = self._waiting_pods.get(pod.uid)
        if waiting_pod is None:
            return None
        try:
            return await waiting_pod.decision()
        finally:
            self._waiting_pods.pop(pod.uid, None)

    def waiting_pod(self, uid: str) -> PodWaitingOnPermit | None:
        return self._waiting_pods.get(uid)

    def reject_waiting_pod(self, uid: str) -> bool:
        """Reject a waiting pod; return False if it does not wait."""
        waiting_pod = self._waiting_pods.get(uid)
        if waiting_pod is None:
            return False
        waiting_pod.reject("", "removed")
        return True

    @observed("PreBindPreFlight")
    def run_pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Return None if some PreBind plugin has work to do, Code.SKIP if none has, else an error."""
        has_work = False
        for plugin in self._pre_bind:
            try:
                flight = plugin.pre_bind_pre_flight
                status = checked_status(self.timing.plugin("PreBindPreFlight", plugin, flight, state, pod, node_name))
            except Exception as error:
                status = status_of_exception(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                has_work = True
            elif status.code is Code.SKIP:
                state.skip_pre_bind.add(plugin.name)
            else:
                text = f'running PreBindPreFlight "{plugin.name}": {status.message}'
                return Status(Code.ERROR, (text,), plugin.name, status.error)
        return None if has_work else Status(Code.SKIP)

    @observed_async("PreBind")
    async def run_pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Run the PreBind plugins; return the first failure."""
        for plugin in self._pre_bind:
            if plugin.name in state.skip_pre_bind:
                continue
            try:
                status = checked_status(
                    await self.timing.async_plugin("PreBind", plugin, plugin.pre_bind, state, pod, node_name)
                )
            except Exception as error:
                status = status_of_exception(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                continue
            return _failure("PreBind", plugin, status)
        return None

    @observed_async("Bind")
    async def run_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Bind the pod by the first bind plugin that does not skip it. None: it is bound."""
        for plugin in self._bind:
            try:
                status = checked_status(
                    await self.timing.async_plugin("Bind", plugin, plugin.bind, state, pod, node_name)
                )
            except Exception as error:
                status = status_of_exception(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                return None
            if status.code is Code.SKIP:
                continue
            return _failure("Bind", plugin, status)
        return Status(Code.ERROR, ("all bind plugins skipped the pod",))

    @observed("PostBind")
    def run_post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        for plugin in self._post_bind:
            try:
                self.timing.plugin("PostBind", plugin, plugin.post_bind, state, pod, node_name)
            except Exception:  # the pod is bound anyway
                log.exception("PostBind failed", extra={"plugin": plugin.name, "pod": pod.key})
