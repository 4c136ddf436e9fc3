"""Which pods are nominated to which nodes: they wait there for others to go, and count while they wait.

Source: pkg/scheduler/backend/queue/nominator.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.cache.node_info import PodInfo

_MAX_CHANGES = 4096  # remembered


class Nominator:
    """`lookup` gives the newest version of a pod by "namespace/name": nobody nominates who is gone or bound."""

    def __init__(self, lookup: Callable[[str], Pod | None]) -> None:
        self._lookup = lookup
        self._by_node: dict[str, dict[str, PodInfo]] = {}  # node -> UID -> pod, in order of nomination
        self._node_of: dict[str, str] = {}  # UID -> node
        self._stamps: dict[str, int] = {}  # of the nodes in _by_node
        self._changed: list[str] = []  # nodes whose nominations changed, the last ones
        self._forgotten = 0  # changes before those

    def add(self, info: PodInfo, node_name: str | None) -> None:
        """Nominate the pod to `node_name`; None: to the node its status names, if it names one.

        "" takes a nomination back. As in v1.36 that is remembered as a nomination to the node "", which there is not:
        so the status, which may still name the old node for a while, does not bring the nomination back.
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
        """Take over another version of the pod. A nomination that neither version knows of yet is kept."""
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
                del self._stamps[node]

    def _note(self, node: str) -> None:
        if len(self._changed) >= _MAX_CHANGES:
            self._forgotten += len(self._changed) // 2
            del self._changed[: len(self._changed) // 2]
        self._changed.append(node)
        self._stamps[node] = self.version

    @property
    def version(self) -> int:
        """Grows with every nomination that comes or goes."""
        return self._forgotten + len(self._changed)

    def changed_since(self, version: int) -> set[str] | None:
        """The nodes whose nominations changed after `version`; None: that is too long ago to tell."""
        if version < self._forgotten:
            return None
        return set(self._changed[version - self._forgotten :])

    def stamp(self, node_name: str) -> int:
        """Equal as long as the nominations to the node are the same; 0 for none."""
        return self._stamps.get(node_name, 0)

    def nodes(self) -> Set[str]:
        """The nodes somebody is nominated to."""
        return self._by_node.keys()

    def pods_on(self, node_name: str) -> list[PodInfo]:
        return list(self._by_node.get(node_name, {}).values())

    def node_of(self, uid: str) -> str:
        return self._node_of.get(uid, "")

    def check(self) -> None:
        """The two indexes say the same."""
        assert self._node_of == {uid: node for node, pods in self._by_node.items() for uid in pods}
        assert all(self._by_node.values())
        assert self._stamps.keys() == self._by_node.keys()
