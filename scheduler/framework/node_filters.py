"""The filters of one profile on a single node, with and without the pods nominated to it.

Dry runs (preemption, nominated pods) use the per-node form of filters and the PreFilter extensions (AddPod, RemovePod).
Source: RunFilterPluginsWithNominatedPods of pkg/scheduler/framework/runtime/framework.go, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import FilterRowsPlugin, PreFilterExtensions, PreFilterPlugin
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.framework.plugin_calls import filter_node, raised, status_of
from kubeloop.scheduler.framework.timing import Timing
from kubeloop.scheduler.queue.nominator import Nominator

_EXTENSIONS = {"add_pod": "PreFilterExtensionAddPod", "remove_pod": "PreFilterExtensionRemovePod"}


class NodeFilters:
    """Filters of one profile. filters_by_rows: names of the filters that have the array form."""

    def __init__(
        self,
        timing: Timing,
        filters: Sequence[Any],
        pre_filters: Sequence[PreFilterPlugin],
        nominator: Callable[[], Nominator],
    ) -> None:
        self.timing = timing
        self.filter = filters
        self.filters_by_rows = frozenset(each.name for each in filters if isinstance(each, FilterRowsPlugin))
        self._extensions = [each for each in pre_filters if isinstance(each, PreFilterExtensions)]
        self._nominator = nominator

    def run_filters_on_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """The first verdict against the node, by the plugins' per-node forms."""
        for plugin in self.filter:
            if plugin.name not in state.skip_filter:
                status = filter_node(plugin, state, pod, node)
                if status is not None:
                    return status
        return None

    def run_filters_with_nominated_pods(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Per-node filters, with the pods nominated to the node counted as there, and without: both must pass."""
        nominated = self.nominated(pod, node.name)
        if nominated:
            with_them, their_state = node.clone(), state.clone()
            for each in nominated:
                with_them.add_pod(each)
                status = self.run_add_pod(their_state, pod, each, with_them)
                if status is not None:
                    return status
            status = self.run_filters_on_node(their_state, pod, with_them)
            if status is not None:
                return status
        return self.run_filters_on_node(state, pod, node)

    def nominated(self, pod: PodInfo, node_name: str) -> list[PodInfo]:
        """Pods nominated to the node that count against `pod`."""
        return [
            each
            for each in self._nominator().pods_on(node_name)
            if each.priority >= pod.priority and each.uid != pod.uid
        ]

    def extends(self, state: CycleState) -> bool:
        """Does any PreFilter extension that applies want to hear of pods that come and go?"""
        return any(plugin.name not in state.skip_filter for plugin in self._extensions)

    def run_add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        """Tell the PreFilter extensions that `added` is on `node` now; the first failure."""
        return self._extend("add_pod", state, pod, added, node)

    def run_remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        """Tell the PreFilter extensions that `removed` is gone from `node`; the first failure."""
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
                status_of(status)
            except Exception as error:
                status = raised(plugin, error)
            if status is not None and status.code is not Code.SUCCESS:
                call = point.removeprefix("PreFilterExtension")
                text = f'running {call} on PreFilter plugin "{plugin.name}": {status.message}'
                return Status(Code.ERROR, (text,), plugin.name, status.error)
        return None
