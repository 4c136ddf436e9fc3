"""The Pods of every ReplicaSet in groups of equal state, readiness and labels, updated with every event.

A ReplicaSet of 5,000 Pods is reconciled whenever one of them changes. Its Pods form a few groups, so that a reconcile
iterates over groups, and over single Pods only to create, delete, adopt or release them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from kubeloop.controllers.runtime.owners.owner_references import index_by_controller
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import controller_of, is_finished, is_ready

PodState = Literal["active", "terminating", "finished"]


class PodGroupKey(NamedTuple):
    """State, readiness and labels, which the Pods of a group have in common."""

    state: PodState
    ready: bool
    labels: frozenset[tuple[str, str]]


PodsByGroup = Mapping[PodGroupKey, Mapping[str, Pod]]
"""Pods by key, by group. No group is empty."""


def pod_group_key(pod: Pod) -> PodGroupKey:
    state: PodState = "active"
    if is_finished(pod):
        state = "finished"
    elif pod.metadata.deletion_timestamp is not None:
        state = "terminating"
    return PodGroupKey(state, is_ready(pod), frozenset(pod.metadata.labels.items()))


class OwnerPodGroups:
    """Groups of Pods by owner (`owner_references.controller_index_key`); orphans by namespace.

    Invariant: holds the Pods under the same value of CONTROLLER_INDEX by `pod_group_key`, for owners of one kind.
    """

    def __init__(self, owner_kind: str) -> None:
        self._owner_kind = owner_kind
        self._groups: dict[str, dict[PodGroupKey, dict[str, Pod]]] = {}

    def get(self, owner: str) -> PodsByGroup:
        """Return the groups of an owner, or of a namespace's orphans. A live view: do not await while iterating."""
        return self._groups.get(owner, {})

    def add(self, pod: Pod) -> None:
        index_key = self._index_key(pod)
        if index_key is not None:
            self._groups.setdefault(index_key, {}).setdefault(pod_group_key(pod), {})[pod.key] = pod

    def update(self, old: Pod, new: Pod) -> None:
        index_key = self._index_key(new)
        if index_key == self._index_key(old):
            if index_key is None:
                return
            group_key = pod_group_key(new)
            if group_key == pod_group_key(old):
                self._groups.setdefault(index_key, {}).setdefault(group_key, {})[new.key] = new
                return
        self.remove(old)
        self.add(new)

    def remove(self, pod: Pod) -> None:
        index_key = self._index_key(pod)
        if index_key is None:
            return
        groups = self._groups.get(index_key)
        group_key = pod_group_key(pod)
        group = groups.get(group_key) if groups is not None else None
        if groups is None or group is None or group.pop(pod.key, None) is None:
            return
        if not group:
            del groups[group_key]
            if not groups:
                del self._groups[index_key]

    def check(self, pods: Iterable[Pod]) -> None:
        """Assert the invariant for the given Pods, which must be all Pods in the store."""
        expected = OwnerPodGroups(self._owner_kind)
        for pod in pods:
            expected.add(pod)
        assert self._groups == expected._groups

    def _index_key(self, pod: Pod) -> str | None:
        reference = controller_of(pod.metadata)
        if reference is not None and reference.kind != self._owner_kind:
            return None
        return next(iter(index_by_controller(pod)))
