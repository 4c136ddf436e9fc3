"""The extension points of the binding cycle: PreBind, Bind and PostBind.

Source: pkg/scheduler/framework/runtime of v1.36.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import (
    BindPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
)
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.plugin_calls import checked_status, failure, status_of_exception
from kubeloop.scheduler.framework.timing import Timing, observed, observed_async

log = logging.getLogger(__name__)

_HAS_WORK = Status(Code.SUCCESS)
_NO_WORK = Status(Code.SKIP)


class BindingPoints:
    """PreBind, Bind and PostBind plugins of one profile, in its order."""

    def __init__(self, timing: Timing, points: Mapping[str, Sequence[Plugin]]) -> None:
        self.timing = timing
        self._pre_bind = cast("list[PreBindPlugin]", points["preBind"])
        self._bind = cast("list[BindPlugin]", points["bind"])
        self._post_bind = cast("list[PostBindPlugin]", points["postBind"])

    @observed("PreBindPreFlight")
    def run_pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Return Code.SUCCESS if some PreBind plugin has work to do, Code.SKIP if none has, else an error."""
        has_work = False
        for plugin in self._pre_bind:
            try:
                status = checked_status(
                    self.timing.plugin("PreBindPreFlight", plugin, plugin.pre_bind_pre_flight, state, pod, node_name)
                )
            except Exception as error:
                status = status_of_exception(plugin, error)
            if status is None or status.code is Code.SUCCESS:
                has_work = True
            elif status.code is Code.SKIP:
                state.skip_pre_bind.add(plugin.name)
            else:
                text = f'running PreBindPreFlight "{plugin.name}": {status.message}'
                return Status(Code.ERROR, (text,), plugin.name, status.error)
        return _HAS_WORK if has_work else _NO_WORK

    @observed_async("PreBind")
    async def run_pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Run the PreBind plugins; return the first failure."""
        for plugin in self._pre_bind:
            if plugin.name in state.skip_pre_bind:
                continue
            status = await self._status("PreBind", plugin, plugin.pre_bind, state, pod, node_name)
            if status is not None:
                return failure("PreBind", plugin, status)
        return None

    @observed_async("Bind")
    async def run_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Bind the pod by the first bind plugin that does not skip it. None: it is bound."""
        for plugin in self._bind:
            status = await self._status("Bind", plugin, plugin.bind, state, pod, node_name)
            if status is None:
                return None
            if status.code is not Code.SKIP:
                return failure("Bind", plugin, status)
        return Status(Code.ERROR, ("all bind plugins skipped the pod",))

    @observed("PostBind")
    def run_post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        for plugin in self._post_bind:
            try:
                self.timing.plugin("PostBind", plugin, plugin.post_bind, state, pod, node_name)
            except Exception:  # the pod is bound anyway
                log.exception("PostBind failed", extra={"plugin": plugin.name, "pod": pod.key})

    async def _status(
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
