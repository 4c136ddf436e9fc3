"""The order of the node list: zones in turn, so that neighbours in the list are in different zones.

Source: pkg/scheduler/backend/cache/node_tree.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.kube.objects.api_types import Node

_ZONE = "topology.kubernetes.io/zone"
_REGION = "topology.kubernetes.io/region"
_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_OLD_REGION = "failure-domain.beta.kubernetes.io/region"


def zone_key(labels: Mapping[str, str]) -> str:
    """Region and zone as one key; "" if the node has neither. The old labels win, as in Kubernetes."""
    zone = labels[_OLD_ZONE] if _OLD_ZONE in labels else labels.get(_ZONE, "")
    region = labels[_OLD_REGION] if _OLD_REGION in labels else labels.get(_REGION, "")
    return f"{region}:\x00:{zone}" if region or zone else ""


class NodeTree:
    """Node names by zone; zones and the nodes in them in order of arrival."""

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, node: Node) -> None:
        names = self._zones.setdefault(zone_key(node.metadata.labels), {})
        if node.metadata.name not in names:
            names[node.metadata.name] = None
            self._count += 1

    def remove(self, node: Node) -> bool:
        """False: the node is not in the tree, under the zone it has now."""
        zone = zone_key(node.metadata.labels)
        names = self._zones.get(zone)
        if names is None or node.metadata.name not in names:
            return False
        del names[node.metadata.name]
        if not names:
            del self._zones[zone]
        self._count -= 1
        return True

    def update(self, old: Node | None, new: Node) -> None:
        """A node that changed zone goes to the end of its new one."""
        if old is not None and zone_key(old.metadata.labels) == zone_key(new.metadata.labels):
            return
        if old is not None:
            self.remove(old)
        self.add(new)

    def names(self) -> list[str]:
        """All nodes: the first of each zone, the second of each zone, and so on."""
        zones = [list(names) for names in self._zones.values()]
        longest = max(map(len, zones), default=0)
        return [names[turn] for turn in range(longest) for names in zones if turn < len(names)]
