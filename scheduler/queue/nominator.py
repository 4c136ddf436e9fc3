"""Nominated pods: pods that preemption makes room for on a node. Other pods' filters take them into account.

Source: pkg/scheduler/backend/queue/nominator.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Set

import msgspec

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.cache.node_info import PodInfo

_MAX_CHANGES = 4096  # logged changes


class Nomination(msgspec.Struct, frozen=True):
    """The change of a pod's nomination by a failed attempt. Source: framework.NominatingInfo.

    node_name: the node at which preemption makes room; "" withdraws the nomination. overrides False: the nomination in
    the pod's status stays.
    """

    node_name: str = ""
    overrides: bool = True

    @property
    def new_node_name(self) -> str | None:
        """The node as in Nominator.add and StatusPatches.set: None if the nomination stays."""
        return self.node_name if self.overrides else None


WITHDRAWN = Nomination()
UNCHANGED = Nomination(overrides=False)


class Nominator:
    """Nominations by node.

    lookup: returns the newest version of a pod by "namespace/name"; deleted or bound pods are not nominated.
    """

    def __init__(self, lookup: Callable[[str], Pod | None]) -> None:
        self._lookup = lookup
        self._by_node: dict[str, dict[str, PodInfo]] = {}  # node -> UID -> pod, in order of nomination
        self._node_of: dict[str, str] = {}  # UID -> node
        self._changed: list[str] = []  # log of nodes whose nominations changed
        self._forgotten = 0  # number of changes that were removed from the log

    def add(self, info: PodInfo, node_name: str | None) -> None:
        """Nominate the pod to `node_name`; None: to the node of its status, if it has one.

        "" withdraws a nomination. As in v1.36 that is stored as a nomination to the non-existent node "", so that the
        status, which may still have the old node for a while, does not restore the nomination.
        """
        self.remove(info.uid)
        node = node_name
        if node is None:
            node = info.pod.status.nominated_node_name
            if not node:
                return
        newest = self._lookup(info.key)
        if newest is None or newest.spec.node_name:
            return
        self._node_of[info.uid] = node
        self._by_node.setdefault(node, {})[info.uid] = info
        self._note(node)

    def update(self, old: Pod | None, info: PodInfo) -> None:
        """Replace the pod by another version. A nomination that is in neither version's status yet is preserved."""
        node_name = None
        if old is not None:
            if not old.status.nominated_node_name and not info.pod.status.nominated_node_name:
                node_name = self._node_of.get(old.metadata.uid)
            self.remove(old.metadata.uid)
        self.add(info, node_name)

    def remove(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is not None:
            pods = self._by_node[node]
            del pods[uid]
            self._note(node)
            if not pods:
                del self._by_node[node]

    def _note(self, node: str) -> None:
        if len(self._changed) >= _MAX_CHANGES:
            self._forgotten += len(self._changed) // 2
            del self._changed[: len(self._changed) // 2]
        self._changed.append(node)

    @property
    def version(self) -> int:
        """Increases with every change of a nomination."""
        return self._forgotten + len(self._changed)

    def changed_since(self, version: int) -> set[str] | None:
        """Return the nodes whose nominations changed after `version`; None if the log does not reach back that far."""
        if version < self._forgotten:
            return None
        return set(self._changed[version - self._forgotten :])

    def nodes(self) -> Set[str]:
        """Return the nodes with nominated pods."""
        return self._by_node.keys()

    def pods_on(self, node_name: str) -> list[PodInfo]:
        return list(self._by_node.get(node_name, {}).values())

    def node_of(self, uid: str) -> str:
        return self._node_of.get(uid, "")

    def check(self) -> None:
        """Assert that the indexes are consistent."""
        assert self._node_of == {uid: node for node, pods in self._by_node.items() for uid in pods}
        assert all(self._by_node.values())
