"""The Pods of every ReplicaSet, grouped by what a reconcile asks of them and kept up to date event by event.

A ReplicaSet of 5,000 Pods is reconciled whenever one of them changes. Its Pods fall into a handful of groups (active
or terminating, ready or not, by labels), so that a reconcile looks at groups, and at single Pods only when it has to
do something about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from kubeloop.controllers.runtime.owner_references import controller_of, index_by_controller
from kubeloop.controllers.runtime.pod_status import is_ready
from kubeloop.kube.objects.api_types import Pod

State = Literal["active", "terminating", "finished"]


class PodGroupKey(NamedTuple):
    """What the Pods of a group have in common."""

    state: State
    ready: bool
    labels: frozenset[tuple[str, str]]


PodsByGroup = Mapping[PodGroupKey, Mapping[str, Pod]]
"""Pods by key, by facts. No group is empty."""


def pod_group_key(pod: Pod) -> PodGroupKey:
    state: State = "active"
    if pod.status.phase in ("Succeeded", "Failed"):
        state = "finished"
    elif pod.metadata.deletion_timestamp is not None:
        state = "terminating"
    return PodGroupKey(state, is_ready(pod), frozenset(pod.metadata.labels.items()))


def group_pods(pods: Iterable[Pod]) -> dict[PodGroupKey, dict[str, Pod]]:
    """These Pods, whoever owns them, in groups."""
    groups: dict[PodGroupKey, dict[str, Pod]] = {}
    for pod in pods:
        groups.setdefault(pod_group_key(pod), {})[pod.key] = pod
    return groups


class PodGroups:
    """Groups of the Pods under each owner (`ownership.controller_index_key`), and of orphans under their namespace.

    Invariant: equals `group_pods` over the Pods that CONTROLLER_INDEX has there, for owners of the one kind.
    """

    def __init__(self, owner_kind: str) -> None:
        self._owner_kind = owner_kind
        self._groups: dict[str, dict[PodGroupKey, dict[str, Pod]]] = {}

    def of(self, owner: str) -> PodsByGroup:
        """The groups under an owner or namespace. A live view: do not await while iterating."""
        return self._groups.get(owner, {})

    def add(self, pod: Pod) -> None:
        where = self._where(pod)
        if where is not None:
            self._groups.setdefault(where, {}).setdefault(pod_group_key(pod), {})[pod.key] = pod

    def update(self, old: Pod, new: Pod) -> None:
        where, facts = self._where(new), pod_group_key(new)
        if where is not None and where == self._where(old) and facts == pod_group_key(old):
            self._groups.setdefault(where, {}).setdefault(facts, {})[new.key] = new
            return
        self.remove(old)
        self.add(new)

    def remove(self, pod: Pod) -> None:
        where = self._where(pod)
        if where is None:
            return
        groups = self._groups.get(where)
        facts = pod_group_key(pod)
        group = groups.get(facts) if groups is not None else None
        if groups is None or group is None or group.pop(pod.key, None) is None:
            return
        if not group:
            del groups[facts]
            if not groups:
                del self._groups[where]

    def check(self, pods: Iterable[Pod]) -> None:
        """Assert the invariant against all Pods there are."""
        expected = PodGroups(self._owner_kind)
        for pod in pods:
            expected.add(pod)
        assert self._groups == expected._groups

    def _where(self, pod: Pod) -> str | None:
        reference = controller_of(pod.metadata)
        if reference is not None and reference.kind != self._owner_kind:
            return None
        return next(iter(index_by_controller(pod)))
