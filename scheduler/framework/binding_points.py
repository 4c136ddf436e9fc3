"""The extension points after a node is chosen: Reserve, Permit, PreBind, Bind and PostBind.

Source: pkg/scheduler/framework/runtime of v1.36.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

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
from kubeloop.scheduler.framework.waiting_pods import WaitingPods

log = logging.getLogger(__name__)

_LONGEST_PERMIT_SECONDS = 15 * 60.0


class BindingPoints:
    """The plugins of one profile from Reserve on."""

    def __init__(self, timing: Timing, points: Mapping[str, Sequence[Plugin]], waiting_pods: WaitingPods) -> None:
        """waiting_pods: receives the pods that wait on permit."""
        self.timing = timing
        self._waiting_pods = waiting_pods
        self._reserve = cast("list[ReservePlugin]", points["reserve"])
        self._permit = cast("list[PermitPlugin]", points["permit"])
        self._pre_bind = cast("list[PreBindPlugin]", points["preBind"])
        self._bind = cast("list[BindPlugin]", points["bind"])
        self._post_bind = cast("list[PostBindPlugin]", points["postBind"])

    @observed("Reserve")
    def run_reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Run the Reserve plugins; return the first failure. The caller then calls run_unreserve."""
        for plugin in self._reserve:
            status = self._status("Reserve", plugin, plugin.reserve, state, pod, node_name)
            if status is not None:
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
        """Run the Permit plugins. None: allowed. Code.WAIT: the pod is one of the waiting pods. Else a failure."""
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
        self._waiting_pods.add(pod, waits)
        return Status(
            Code.WAIT, (f'one or more plugins asked to wait and no plugin rejected pod "{pod.pod.metadata.name}"',)
        )

    @observed("PreBindPreFlight")
    def run_pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Return None if some PreBind plugin has work to do, Code.SKIP if none has, else an error."""
        has_work = False
        for plugin in self._pre_bind:
            status = self._status("PreBindPreFlight", plugin, plugin.pre_bind_pre_flight, state, pod, node_name)
            if status is None:
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
            status = await self._async_status("PreBind", plugin, plugin.pre_bind, state, pod, node_name)
            if status is not None:
                return _failure("PreBind", plugin, status)
        return None

    @observed_async("Bind")
    async def run_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Bind the pod by the first bind plugin that does not skip it. None: it is bound."""
        for plugin in self._bind:
            status = await self._async_status("Bind", plugin, plugin.bind, state, pod, node_name)
            if status is None:
                return None
            if status.code is not Code.SKIP:
                return _failure("Bind", plugin, status)
        return Status(Code.ERROR, ("all bind plugins skipped the pod",))

    @observed("PostBind")
    def run_post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        for plugin in self._post_bind:
            try:
                self.timing.plugin("PostBind", plugin, plugin.post_bind, state, pod, node_name)
            except Exception:  # the pod is bound anyway
                log.exception("PostBind failed", extra={"plugin": plugin.name, "pod": pod.key})

    def _status(
        self, point: str, plugin: Plugin, call: Callable[..., Any], state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | None:
        """Call a plugin; return None if it succeeded."""
        try:
            status = checked_status(self.timing.plugin(point, plugin, call, state, pod, node_name))
        except Exception as error:
            status = status_of_exception(plugin, error)
        return None if status is not None and status.code is Code.SUCCESS else status

    async def _async_status(
        self,
        point: str,
        plugin: Plugin,
        call: Callable[..., Awaitable[Any]],
        state: CycleState,
        pod: PodInfo,
        node_name: str,
    ) -> Status | None:
        """Await a plugin's coroutine; return None if it succeeded."""
        try:
            status = checked_status(await self.timing.async_plugin(point, plugin, call, state, pod, node_name))
        except Exception as error:
            status = status_of_exception(plugin, error)
        return None if status is not None and status.code is Code.SUCCESS else status


def _failure(point: str, plugin: Plugin, status: Status) -> Status:
    """Return the plugin's rejection with its name, or an error for any other status at `point`."""
    if status.is_rejection:
        return with_plugin_name(status, plugin.name)
    text = f'running {point} plugin "{plugin.name}": {status.message}'
    return Status(Code.ERROR, (text,), plugin.name, status.error)
