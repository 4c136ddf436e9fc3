"""A node as it would be if pods came or went: for preemption, and for pods nominated to a node.

Where no filter that applies looks at a node's pods but for their number and the sums of what they request, a copy of
those sums is enough, and filters that look at no pods at all are asked once. That is most pods' case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.framework.interface import CycleState, Status

if TYPE_CHECKING:
    from kubeloop.scheduler.framework.runtime import Framework


class DryRunNode(Protocol):
    """Changes only itself. What fails to follow a change returns its Status."""

    def add(self, other: PodInfo) -> Status | None: ...

    def remove(self, other: PodInfo) -> Status | None: ...

    def verdict(self) -> Status | None:
        """The filters' first verdict against the pod, with the pods nominated to the node counted as there, and
        without: both must pass."""
        ...


DryRuns = Callable[[NodeInfo], DryRunNode]


def dry_runs(framework: Framework, state: CycleState, pod: PodInfo) -> DryRuns:
    """Makes dry runs of `pod` on nodes, by the cheapest means that this pod's filters allow."""
    if not sums_suffice(framework, state):
        return lambda node: _Copy(framework, state, pod, node)
    filters = _applying(framework, state)
    summing = [each for each in filters if _declares(each, "sums_pods")]
    return lambda node: _Sums(framework, filters, summing, state, pod, node)


def sums_suffice(framework: Framework, state: CycleState) -> bool:
    """Does no filter that applies look at single pods of a node?"""
    applying = _applying(framework, state)
    return all(_declares(each, "sees_no_pods") or _declares(each, "sums_pods") for each in applying) and not (
        framework.extends(state)
    )


def _applying(framework: Framework, state: CycleState) -> list[Any]:
    return [each for each in framework.filter if each.name not in state.skip_filter]


def _declares(plugin: Any, what: str) -> bool:
    """By its own class: a plugin of the user's that inherits from one of ours may well look at more."""
    return bool(vars(type(plugin)).get(what, False))


class _Copy:
    """The whole node, and the state of all plugins."""

    __slots__ = ("_framework", "_node", "_pod", "_state")

    def __init__(self, framework: Framework, state: CycleState, pod: PodInfo, node: NodeInfo) -> None:
        self._framework = framework
        self._state = state.clone()
        self._pod = pod
        self._node = node.clone()

    def add(self, other: PodInfo) -> Status | None:
        self._node.add_pod(other)
        return self._framework.run_add_pod(self._state, self._pod, other, self._node)

    def remove(self, other: PodInfo) -> Status | None:
        self._node.remove_pod(other.uid)
        return self._framework.run_remove_pod(self._state, self._pod, other, self._node)

    def verdict(self) -> Status | None:
        return self._framework.run_filters_with_nominated_pods(self._state, self._pod, self._node)


class _Sums:
    """Only `pods` and `requested` of the node, with nominated pods (first, if there are any) and without."""

    __slots__ = ("_filters", "_framework", "_nodes", "_pod", "_state", "_summing")

    def __init__(
        self,
        framework: Framework,
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

    def add(self, other: PodInfo) -> None:
        for node in self._nodes:
            node.add_to_sums(other)

    def remove(self, other: PodInfo) -> None:
        for node in self._nodes:
            node.remove_from_sums(other)

    def verdict(self) -> Status | None:
        for node in self._nodes:
            for plugin in self._filters:
                status = self._framework.filter_node(plugin, self._state, self._pod, node)
                if status is not None:
                    return status
        self._filters = self._summing  # the others have passed, and cannot change their mind
        return None
