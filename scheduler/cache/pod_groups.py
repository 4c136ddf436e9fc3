"""Pod groups as the scheduler sees them: which pods of a group exist, and which have a node.

States of a pod in its group:

    unscheduled -- assume --> assumed -- update: bound --> assigned
         ^                       |
         +------- forget --------+

Source: pkg/scheduler/backend/cache/podgroupstate.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.kube.objects.api_types import Pod


def pod_group_key(pod: Pod) -> str:
    """Return "namespace/name" of the pod's group; "" if it is in none."""
    group = pod.spec.scheduling_group
    if group is None or not group.pod_group_name:
        return ""
    return f"{pod.metadata.namespace}/{group.pod_group_name}"


class PodGroupState:
    """The pods of one group. A pod that is neither assumed nor assigned is unscheduled.

    pods: by UID, as the informer has them. assumed: by UID, as the scheduler assumes them, with their node. assigned:
    UIDs of bound pods. waiting: UIDs of assumed pods that wait on permit for others of the group, oldest first.
    """

    __slots__ = ("_inactive", "assigned", "assumed", "pods", "waiting")

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.assumed: dict[str, Pod] = {}
        self.assigned: set[str] = set()
        self.waiting: dict[str, None] = {}
        self._inactive: dict[str, Pod] = {}  # by UID, see take_inactive()

    def put(self, pod: Pod) -> None:
        """Add a pod or replace it by another version. A bound pod is no longer assumed."""
        uid = pod.metadata.uid
        self.pods[uid] = pod
        if pod.spec.node_name:
            self.forget(uid)
            self._inactive.pop(uid, None)
            self.assigned.add(uid)
        elif uid not in self.assumed:
            self._inactive[uid] = pod

    def remove(self, uid: str) -> None:
        """Remove a deleted pod. No effect if it is absent."""
        self.pods.pop(uid, None)
        self.forget(uid)
        self._inactive.pop(uid, None)
        self.assigned.discard(uid)

    def assume(self, pod: Pod) -> None:
        """Note that the scheduler chose a node for the pod. No effect if it was deleted, or is bound already."""
        uid = pod.metadata.uid
        if uid in self.pods and uid not in self.assigned:
            self.assumed[uid] = pod
            self._inactive.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Undo assume()."""
        self.waiting.pop(uid, None)
        if self.assumed.pop(uid, None) is not None and uid in self.pods:
            self._inactive[uid] = self.pods[uid]

    def requeued(self, uid: str) -> None:
        """Note that the pod returned to the scheduling queue."""
        if uid in self.pods and uid not in self.assumed and uid not in self.assigned:
            self._inactive[uid] = self.pods[uid]

    def take_inactive(self) -> list[Pod]:
        """Return the pods without a node that were added, changed, forgotten or requeued since the last call."""
        inactive = list(self._inactive.values())
        self._inactive.clear()
        return inactive

    @property
    def scheduled_count(self) -> int:
        """Number of pods that are assumed or assigned."""
        return len(self.assumed) + len(self.assigned)

    def scheduled_pods(self) -> list[Pod]:
        """Return the pods that are assigned, in the order in which they arrived, and those that are assumed."""
        return [*(pod for uid, pod in self.pods.items() if uid in self.assigned), *self.assumed.values()]

    def unscheduled_pods(self) -> list[Pod]:
        """Return the pods without a node, in the order in which they arrived."""
        return [pod for uid, pod in self.pods.items() if uid not in self.assumed and uid not in self.assigned]

    def copy(self) -> PodGroupState:
        """Return an independent copy; pods are shared."""
        copy = PodGroupState()
        copy.pods, copy.assumed, copy.assigned = self.pods.copy(), self.assumed.copy(), self.assigned.copy()
        copy._inactive = self._inactive.copy()
        return copy


class PodGroupStates:
    """The state of each group that has a pod, by "namespace/name" of the group. Pods of no group are ignored."""

    def __init__(self) -> None:
        self._groups: dict[str, PodGroupState] = {}

    def get(self, key: str) -> PodGroupState | None:
        """Return the live state of the group; None if it has no pods."""
        return self._groups.get(key)

    def all(self) -> Mapping[str, PodGroupState]:
        return self._groups

    def put(self, pod: Pod) -> None:
        """Add a pod, or another version of it."""
        key = pod_group_key(pod)
        if key:
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = PodGroupState()
            group.put(pod)

    def remove(self, pod: Pod) -> None:
        """Remove a deleted pod."""
        key = pod_group_key(pod)
        group = self._groups.get(key)
        if group is not None:
            group.remove(pod.metadata.uid)
            if not group.pods:
                del self._groups[key]

    def assume(self, pod: Pod) -> None:
        """Note that the scheduler chose a node for the pod; see PodGroupState.assume."""
        group = self._groups.get(pod_group_key(pod))
        if group is not None:
            group.assume(pod)

    def forget(self, pod: Pod) -> None:
        """Undo assume()."""
        group = self._groups.get(pod_group_key(pod))
        if group is not None:
            group.forget(pod.metadata.uid)

    def requeued(self, pod: Pod) -> None:
        """Note that the pod returned to the scheduling queue."""
        group = self._groups.get(pod_group_key(pod))
        if group is not None:
            group.requeued(pod.metadata.uid)

    def check(self) -> None:
        """Assert that no pod has two states, that only assumed ones wait on permit, and that no group is empty."""
        for group in self._groups.values():
            assert group.pods
            assert not group.assumed.keys() & group.assigned
            assert group.waiting.keys() <= group.assumed.keys()
            assert group.assumed.keys() | group.assigned <= group.pods.keys()
            assert all(pod.spec.node_name for pod in group.scheduled_pods())
