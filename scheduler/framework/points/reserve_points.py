"""The extension points that reserve the chosen node: Reserve, Unreserve and Permit.

Source: pkg/scheduler/framework/runtime of v1.36.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import cast

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import PermitPlugin, Plugin, ReservePlugin
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.plugin_calls import checked_status, failure, status_of_exception
from kubeloop.scheduler.framework.timing import Timing, observed
from kubeloop.scheduler.framework.waiting_pods import WaitingPods

log = logging.getLogger(__name__)

_LONGEST_PERMIT_SECONDS = 15 * 60.0


class ReservePoints:
    """Reserve and Permit plugins of one profile, in its order."""

    def __init__(self, timing: Timing, points: Mapping[str, Sequence[Plugin]], waiting_pods: WaitingPods) -> None:
        """waiting_pods: receives the pods that wait on permit."""
        self.timing = timing
        self._waiting_pods = waiting_pods
        self._reserve = cast("list[ReservePlugin]", points["reserve"])
        self._permit = cast("list[PermitPlugin]", points["permit"])

    @observed("Reserve")
    def run_reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Run the Reserve plugins; return the first failure. The caller then calls run_unreserve."""
        for plugin in self._reserve:
            try:
                status = checked_status(self.timing.plugin("Reserve", plugin, plugin.reserve, state, pod, node_name))
            except Exception as error:
                status = status_of_exception(plugin, error)
            if status is not None and status.code is not Code.SUCCESS:
                return failure("Reserve", plugin, status)
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
        """Run the Permit plugins. None: allowed. Code.WAIT: the pod is one of the waiting pods. Else a failure.

        In the cycle of a pod group, no pod waits yet: Code.WAIT says that it would.
        """
        waits: dict[str, float] = {}
        reasons: tuple[str, ...] = ()  # of the last plugin that waits
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
                return failure("Permit", plugin, status)
            waits[plugin.name], reasons = seconds, status.reasons
        if not waits:
            return None
        if state.pod_group_cycle is None:
            self._waiting_pods.add(pod, waits)
        return Status(Code.WAIT, (*reasons, "one or more plugins asked to wait and no plugin rejected pod"))
