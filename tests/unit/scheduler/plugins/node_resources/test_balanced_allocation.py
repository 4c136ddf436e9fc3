"""NodeResourcesBalancedAllocation over more than two resources."""

from __future__ import annotations

from typing import Any

from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from support.scheduling.plugin_cluster import raw_scores


def test_balance_of_three_resources_uses_standard_deviation(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node(f"n{number}", allocatable={"ephemeral-storage": "8Gi"}) for number in range(5)])
    names = ("cpu", "memory", "ephemeral-storage")
    resources = tuple(plugin_args.ResourceSpec(name=name) for name in names)
    plugin = NodeResourcesBalancedAllocation(plugin_args.ResourcesArgs(resources=resources), cluster)
    # shares 0.5, 0, 0: deviation 0.2357 after, 0 before
    assert raw_scores(plugin, cluster, PodInfo(pod("new", cpu="2"))) == [63] * 5
