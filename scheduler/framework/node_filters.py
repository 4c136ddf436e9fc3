"""The filters of one profile on a single node, with and without the pods nominated to it.

Dry runs (preemption, nominated pods) use the per-node form of filters and the PreFilter extensions (AddPod, RemovePod).
Source: RunFilterPluginsWithNominatedPods of pkg/scheduler/framework/runtime/framework.go, v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import FilterRowsPlugin, Plugin, PreFilterExtensions
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.framework.plugin_calls import checked_status, filter_node, status_of_exception
from kubeloop.scheduler.framework.profile_plugins import extends
from kubeloop.scheduler.framework.timing import Timing
from kubeloop.scheduler.queue.nominator import Nominator

_EXTENSIONS = {"add_pod": "PreFilterExtensionAddPod", "remove_pod": "PreFilterExtensionRemovePod"}


class NodeFilters:
    """Filters of one profile. filters_by_rows: names of the filters that have the array form."""

    def __init__(
        self,
        timing: Timing,
        filters: Sequence[Any],
        pre_filters: Sequence[Plugin],
        nominator: Nominator,
    ) -> None:
        self.timing = timing
        self.filter = filters
        self.filters_by_rows = frozenset(plugin.name for plugin in filters if extends(plugin, FilterRowsPlugin))
        self._extensions: list[Any] = [plugin for plugin in pre_filters if extends(plugin, PreFilterExtensions)]
        self._nominator = nominator

    def run_filters_on_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Run the per-node filters; return the first rejection or error."""
        for plugin in self.filter:
            if plugin.name not in state.skip_filter:
                status = filter_node(plugin, state, pod, node)
                if status is not None:
                    return status
        return None

    def run_filters_with_nominated_pods(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Run the per-node filters with the pods nominated to the node, and without them; both must pass."""
        nominated = self.nominated_pods(pod, node.name)
        if nominated:
            with_nominated, state_with_nominated = node.clone(), state.clone()
            for other in nominated:
                with_nominated.add_pod(other)
                status = self.run_add_pod(state_with_nominated, pod, other, with_nominated)
                if status is not None:
                    return status
            status = self.run_filters_on_node(state_with_nominated, pod, with_nominated)
            if status is not None:
                return status
        return self.run_filters_on_node(state, pod, node)

    def nominated_pods(self, pod: PodInfo, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to the node that have at least the priority of `pod`."""
        return [
            other
            for other in self._nominator.pods_on(node_name)
            if other.priority >= pod.priority and other.uid != pod.uid
        ]

    def has_pre_filter_extensions(self, state: CycleState) -> bool:
        """Return True if any PreFilter extension applies to this pod."""
        return any(plugin.name not in state.skip_filter for plugin in self._extensions)

    def run_add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        """Call AddPod of the PreFilter extensions for `added` on `node`; return the first failure."""
        return self._extend("add_pod", state, pod, added, node)

    def run_remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        """Call RemovePod of the PreFilter extensions for `removed` on `node`; return the first failure."""
        return self._extend("remove_pod", state, pod, removed, node)

    def _extend(self, method: str, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> Status | None:
        point = _EXTENSIONS[method]
        for plugin in self._extensions:
            if plugin.name in state.skip_filter:
                continue
            try:
                status: Status | None = self.timing.plugin(
                    point, plugin, getattr(plugin, method), state, pod, other, node
                )
                checked_status(status)
            except Exception as error:
                status = status_of_exception(plugin, error)
            if status is not None and status.code is not Code.SUCCESS:
                call = point.removeprefix("PreFilterExtension")
                text = f'running {call} on PreFilter plugin "{plugin.name}": {status.message}'
                return Status(Code.ERROR, (text,), plugin.name, status.error)
        return None
