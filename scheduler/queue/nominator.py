"""Which pods are nominated to which nodes: they wait there for others to go, and count while they wait.

Source: pkg/scheduler/backend/queue/nominator.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kubeloop.kube.objects import Pod
from kubeloop.scheduler.cache.node_info import PodInfo


class Nominator:
    """`lookup` gives the newest version of a pod by "namespace/name": nobody nominates who is gone or bound."""

    def __init__(self, lookup: Callable[[str], Pod | None]) -> None:
        self._lookup = lookup
        self._by_node: dict[str, dict[str, PodInfo]] = {}  # node -> UID -> pod, in order of nomination
        self._node_of: dict[str, str] = {}  # UID -> node

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
            if not pods:
                del self._by_node[node]

    def nodes(self) -> Collection[str]:
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
