"""NodeUnschedulable: cordoned nodes, and the toleration for them."""

from __future__ import annotations

from typing import Any

from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.node_unschedulable import NodeUnschedulable
from support.scheduling.plugin_cluster import rejections


def test_cordoned_node_is_rejected_unless_tolerated(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("cordoned", unschedulable=True), *[node(name) for name in "abcd"]])
    plugin = NodeUnschedulable(plugin_args.NoArgs(), cluster)
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    assert rejections(plugin, cluster, pod("p")) == {"cordoned": ("node(s) were unschedulable",)}
    assert rejections(plugin, cluster, pod("q", tolerations=[toleration])) == {}
