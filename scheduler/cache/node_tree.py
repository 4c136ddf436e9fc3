"""Node tree: orders nodes so that zones alternate.

Source: pkg/scheduler/backend/cache/node_tree.go of v1.36.
"""

from __future__ import annotations

from kubeloop.kube.objects.api_types import Node
from kubeloop.kube.objects.object_fields import zone_key


class NodeTree:
    """Node names by zone; zones, and nodes in a zone, in the order they were added."""

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
        """Remove a node; return False if it is not in the zone of its labels."""
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
        """Move a node whose zone changed to the end of its new zone."""
        if old is not None and zone_key(old.metadata.labels) == zone_key(new.metadata.labels):
            return
        if old is not None:
            self.remove(old)
        self.add(new)

    def names(self) -> list[str]:
        """Return all nodes: the first of each zone, then the second of each zone, and so on."""
        zones = [list(names) for names in self._zones.values()]
        longest = max(map(len, zones), default=0)
        return [names[turn] for turn in range(longest) for names in zones if turn < len(names)]
