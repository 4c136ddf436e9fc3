"""A node as it would be if pods came or went: for preemption, and for pods nominated to a node.

Where no filter that applies looks at a node's pods but for their number and the sums of what they request, a copy of
those sums is enough, and filters that look at no pods at all are asked once. That is most pods' case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.dry_run import DryRunNode
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Mask
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.node_filters import NodeFilters
from kubeloop.scheduler.framework.plugin_calls import filter_node


class NodeFreeCapacity:
    """What is free on a node for a pod of which nothing but that counts; its own changes only.

    needed: of each resource; slots: how many pods more the node takes, the incoming one counted already.
    """

    __slots__ = ("_free", "_needed", "_slots")

    def __init__(self, needed: Mapping[str, int], node: NodeInfo, nominated: Iterable[PodInfo]) -> None:
        self._needed = needed.items()
        allocatable, requested = node.allocatable, node.requested
        self._slots = allocatable.get("pods", 0) - len(node.pods) - 1
        self._free = {name: allocatable.get(name, 0) - requested.get(name, 0) - amount for name, amount in self._needed}
        for other in nominated:
            self._slots -= 1
            for name in self._free:
                self._free[name] -= other.requests.get(name, 0)

    def remove_pod(self, other: PodInfo) -> None:
        """`other` goes."""
        self._slots += 1
        free, requests = self._free, other.requests
        for name in free:
            free[name] += requests.get(name, 0)

    @property
    def is_sufficient(self) -> bool:
        return self._slots >= 0 and all(amount >= 0 for amount in self._free.values())

    def add_pod_if_fits(self, other: PodInfo) -> bool:
        """`other` comes back, if the room suffices then. False: it does not."""
        if self._slots < 1:
            return False
        free, requests = self._free, other.requests
        for name, amount in free.items():
            if amount < requests.get(name, 0):
                return False
        self._slots -= 1
        for name in free:
            free[name] -= requests.get(name, 0)
        return True


class NodeDryRuns:
    """Makes dry runs of one pod on nodes of the snapshot, by the cheapest means that this pod's filters allow."""

    def __init__(self, framework: NodeFilters, state: CycleState, pod: PodInfo) -> None:
        self._framework = framework
        self._state = state
        self._pod = pod
        self.only_sums = reads_only_sums(framework, state)
        self._filters = _applying(framework, state)
        self._summing = [each for each in self._filters if _declares(each, "reads_only_pod_sums")]
        self._needed: Mapping[str, int] | None = None
        if self.only_sums and len(self._summing) == 1 and _declares(self._summing[0], "resources_needed"):
            self._needed = self._summing[0].resources_needed(state, pod)
        self._passing: tuple[Snapshot, int, Mask] | None = None

    def __call__(self, node: NodeInfo) -> DryRunNode:
        if self.only_sums:
            return _SummedNode(self._framework, self._filters, self._summing, self._state, self._pod, node)
        return _CopiedNode(self._framework, self._state, self._pod, node)

    def free_capacity(self, node: NodeInfo, snapshot: Snapshot) -> NodeFreeCapacity | None:
        """The room on a node of the snapshot, where that is all that decides; None: it is not, or other filters have
        something against the node."""
        if self._needed is None or not self._others_pass(snapshot)[snapshot.row_of[node.name]]:
            return None
        return NodeFreeCapacity(self._needed, node, self._framework.nominated(self._pod, node.name))

    def _others_pass(self, snapshot: Snapshot) -> Mask:
        """What the filters say that look at no pods at all: bool [N]."""
        kept = self._passing
        if kept is None or kept[0] is not snapshot or kept[1] != snapshot.generation:
            passing = np.ones(len(snapshot), np.bool_)
            for plugin in self._filters:
                if plugin not in self._summing:
                    rows = np.flatnonzero(passing)
                    if plugin.name in self._framework.filters_by_rows:
                        passing[rows] = plugin.filter_rows(self._state, self._pod, snapshot, rows).passed
                    else:
                        passing[:] = False  # its verdicts on each node are the business of __call__
            kept = self._passing = (snapshot, snapshot.generation, passing)
        return kept[2]


def reads_only_sums(framework: NodeFilters, state: CycleState) -> bool:
    """Does no filter that applies look at single pods of a node?"""
    applying = _applying(framework, state)
    return all(
        _declares(each, "ignores_other_pods") or _declares(each, "reads_only_pod_sums") for each in applying
    ) and not (framework.extends(state))


def _applying(framework: NodeFilters, state: CycleState) -> list[Any]:
    return [each for each in framework.filter if each.name not in state.skip_filter]


def _declares(plugin: Any, what: str) -> bool:
    """By its own class: a plugin of the user's that inherits from one of ours may well look at more."""
    return bool(vars(type(plugin)).get(what, False))


class _CopiedNode:
    """The whole node, and the state of all plugins."""

    __slots__ = ("_framework", "_node", "_pod", "_state")

    def __init__(self, framework: NodeFilters, state: CycleState, pod: PodInfo, node: NodeInfo) -> None:
        self._framework = framework
        self._state = state.clone()
        self._pod = pod
        self._node = node.clone()

    def add_pod(self, other: PodInfo) -> Status | None:
        self._node.add_pod(other)
        return self._framework.run_add_pod(self._state, self._pod, other, self._node)

    def remove_pod(self, other: PodInfo) -> Status | None:
        self._node.remove_pod(other.uid)
        return self._framework.run_remove_pod(self._state, self._pod, other, self._node)

    def run_filters(self) -> Status | None:
        return self._framework.run_filters_with_nominated_pods(self._state, self._pod, self._node)


class _SummedNode:
    """Only `pods` and `requested` of the node, with nominated pods (first, if there are any) and without."""

    __slots__ = ("_filters", "_framework", "_nodes", "_pod", "_state", "_summing")

    def __init__(
        self,
        framework: NodeFilters,
        filters: list[Any],
        summing: list[Any],
        state: CycleState,
        pod: PodInfo,
        node: NodeInfo,
    ) -> None:
        self._framework = framework
        self._filters = filters
        self._summing = summing
        self._state = state
        self._pod = pod
        self._nodes = [node.with_own_sums()]
        nominated = framework.nominated(pod, node.name)
        if nominated:
            with_them = node.with_own_sums()
            for each in nominated:
                with_them.add_to_sums(each)
            self._nodes.insert(0, with_them)

    def add_pod(self, other: PodInfo) -> None:
        for node in self._nodes:
            node.add_to_sums(other)

    def remove_pod(self, other: PodInfo) -> None:
        for node in self._nodes:
            node.remove_from_sums(other)

    def run_filters(self) -> Status | None:
        for node in self._nodes:
            for plugin in self._filters:
                status = filter_node(plugin, self._state, self._pod, node)
                if status is not None:
                    return status
        self._filters = self._summing  # the others have passed, and cannot change their mind
        return None
