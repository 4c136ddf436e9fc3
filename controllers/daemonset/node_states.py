"""The nodes that a DaemonSet's sync has to consider, and their pods, updated with every event.

A DaemonSet on 1,000 nodes is synced whenever one of its pods changes. Nodes where nothing is left to do are not
considered by a sync: those with one available pod of the current revision, which are counted, and those that need no
pod and have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from kubeloop.controllers.daemonset.daemon_pods import (
    Eligibility,
    PodPlacement,
    is_updated,
    target_node,
    template_generation,
)
from kubeloop.controllers.runtime.owners.owner_references import index_by_controller
from kubeloop.controllers.runtime.pods.pod_availability import is_available
from kubeloop.kube.objects.api_types import DaemonSet, Node, Pod
from kubeloop.kube.objects.object_fields import controller_of, is_finished
from kubeloop.kube.objects.resources import DAEMON_SETS


class Revision(NamedTuple):
    """Current revision of a DaemonSet, by which its pods count as updated, and minReadySeconds."""

    hash: str
    template_generation: str | None
    min_ready_seconds: int

    @classmethod
    def of(cls, daemon_set: DaemonSet, revision_hash: str) -> Revision:
        return cls(revision_hash, template_generation(daemon_set), daemon_set.spec.min_ready_seconds)

    def has(self, pod: Pod) -> bool:
        return is_updated(pod, self.hash, self.template_generation)

    def is_available(self, pod: Pod, now: datetime) -> bool:
        return is_available(pod, self.min_ready_seconds, now)


class NodeState(NamedTuple):
    """One node for one DaemonSet. pods: without those that are finished and being deleted. exists: False if the node
    was deleted."""

    name: str
    eligibility: Eligibility
    pods: tuple[Pod, ...]
    exists: bool = True


class NodeStates(NamedTuple):
    """The nodes that a sync considers, and the number of others that have a pod: available, of the current revision."""

    states: tuple[NodeState, ...]
    complete: int = 0

    @property
    def desired(self) -> int:
        """Number of nodes that should run a pod."""
        return self.complete + sum(state.eligibility.should_run for state in self.states)


def is_complete(state: NodeState, revision: Revision, now: datetime) -> bool:
    """Return True if the node has exactly the pod that it should have: available and of the current revision."""
    if len(state.pods) != 1 or not state.eligibility.should_run:
        return False
    (pod,) = state.pods
    return (
        pod.metadata.deletion_timestamp is None
        and not is_finished(pod)
        and revision.has(pod)
        and revision.is_available(pod, now)
    )


class NodeTracker:
    """Which nodes of one DaemonSet are complete, and which of the others its next sync considers.

    A node in neither set needs no pod and has none. The state of a node is computed again after a change of the node or
    of its pods.
    """

    def __init__(self) -> None:
        self._basis: object = None  # what the sets were computed from
        self._placement: PodPlacement | None = None
        self.complete: set[str] = set()
        self.unsettled: dict[str, NodeState | None] = {}  # None: not computed yet
        self._eligibilities: dict[str, Eligibility] = {}

    def update(self, basis: object, new_placement: Callable[[], PodPlacement], nodes: Iterable[str]) -> None:
        """Consider all nodes again if `basis` has changed."""
        if basis == self._basis:
            return
        self._basis, self._placement = basis, new_placement()
        self.complete.clear()
        self._eligibilities.clear()
        self.unsettled = dict.fromkeys(nodes)

    def pods_changed(self, node: str) -> None:
        self.complete.discard(node)
        self.unsettled[node] = None

    def node_changed(self, node: str) -> None:
        self._eligibilities.pop(node, None)
        self.pods_changed(node)

    def eligibility(self, node: Node) -> Eligibility:
        """Return the eligibility of a node by the template of the last update()."""
        name = node.metadata.name
        eligibility = self._eligibilities.get(name)
        if eligibility is None:
            assert self._placement is not None
            eligibility = self._eligibilities[name] = self._placement.eligibility(node)
        return eligibility

    def states(self, state_of: Callable[[str], NodeState], revision: Revision, now: datetime) -> NodeStates:
        """Return the states of the nodes that are not settled, after removing those that are by now."""
        states = []
        for name, known in [*self.unsettled.items()]:
            state = self.unsettled[name] = known or state_of(name)
            if (known is None or revision.min_ready_seconds) and is_complete(state, revision, now):
                self.complete.add(name)
                del self.unsettled[name]
            elif not state.pods and not state.eligibility.should_run:
                del self.unsettled[name]
            else:
                states.append(state)
        return NodeStates(tuple(states), len(self.complete))


class PodsByNode:
    """Pods of DaemonSets by owner (`owner_references.controller_index_key`), target node and key.

    Pods without a target node are not included. Invariant: agrees with the pods in the store.
    """

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, dict[str, Pod]]] = {}

    def nodes(self, owner: str) -> Mapping[str, Mapping[str, Pod]]:
        """Return the pods of an owner by node. A live view: do not await while iterating."""
        return self._pods.get(owner, {})

    def add(self, pod: Pod) -> tuple[str, str] | None:
        """Add or replace a pod. Returns its owner and node."""
        place = self.place(pod)
        if place is not None:
            owner, node = place
            self._pods.setdefault(owner, {}).setdefault(node, {})[pod.key] = pod
        return place

    def remove(self, pod: Pod) -> tuple[str, str] | None:
        """Remove a pod. Returns its owner and node."""
        place = self.place(pod)
        if place is not None:
            owner, node = place
            nodes = self._pods.get(owner, {})
            pods = nodes.get(node, {})
            if pods.pop(pod.key, None) is not None and not pods:
                del nodes[node]
                if not nodes:
                    del self._pods[owner]
        return place

    def place(self, pod: Pod) -> tuple[str, str] | None:
        reference = controller_of(pod.metadata)
        if reference is None or reference.kind != DAEMON_SETS.kind:
            return None
        node = target_node(pod)
        return (next(iter(index_by_controller(pod))), node) if node is not None else None

    def check(self, pods: Iterable[Pod]) -> None:
        """Assert the invariant for the given pods, which must be all pods in the store."""
        expected = PodsByNode()
        for pod in pods:
            expected.add(pod)
        assert self._pods == expected._pods
