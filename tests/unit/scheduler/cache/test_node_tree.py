"""NodeTree: nodes alternate between zones."""

from __future__ import annotations

from typing import Any

from kubeloop.scheduler.cache.node_tree import NodeTree

ZONE = "topology.kubernetes.io/zone"


def test_zones_alternate(node: Any) -> None:
    tree = NodeTree()
    for name, zone in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c"), ("c2", "c")):
        tree.add(node(name, labels={ZONE: zone}))
    assert tree.names() == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert len(tree) == 6


def test_node_moves_to_the_end_of_its_new_zone(node: Any) -> None:
    tree = NodeTree()
    nodes = [node(f"n{number}", labels={ZONE: zone}) for number, zone in enumerate("aab")]
    for added in nodes:
        tree.add(added)
    tree.update(nodes[0], node("n0", labels={ZONE: "b"}))
    assert tree.names() == ["n1", "n2", "n0"]
    assert not tree.remove(nodes[0])  # it is in another zone now
