"""The framework: plugins of a profile at their extension points."""

from __future__ import annotations

from typing import Any

from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.scheduler.framework.timing import TimedPreEnqueue
from support.scheduling.plugin_cluster import PluginCluster


def names(plugins: Any) -> list[str]:
    return [plugin.name for plugin in plugins]


def framework(cluster: PluginCluster, *disabled: str) -> Framework:
    return cluster.make_framework(plugins={"multiPoint": {"disabled": [{"name": name} for name in disabled]}})


def test_extension_points_have_the_plugins_in_the_order_of_the_profile() -> None:
    default = framework(PluginCluster(), "VolumeBinding")
    assert default.queue_sort.name == "PrioritySort"
    assert names(default.pre_enqueue) == ["SchedulingGates", "DynamicResources", "DefaultPreemption"]
    assert names(default.filters.filter)[:2] == ["NodeUnschedulable", "NodeName"]
    assert names(default.filters.post_filter) == ["DynamicResources", "DefaultPreemption"]
    assert names(default.scores.scorers)[0] == "TaintToleration"
    assert default.scores.scorers[0].weight == 3
    assert "VolumeBinding" not in default.plugins


def test_only_plugins_that_can_reject_a_pod_register_events() -> None:
    assert {"PrioritySort", "DefaultBinder", "ImageLocality"}.isdisjoint(
        names(framework(PluginCluster()).event_plugins)
    )
    assert "NodeResourcesFit" in names(framework(PluginCluster()).event_plugins)


def test_pre_enqueue_calls_are_measured() -> None:
    pre_enqueue = framework(PluginCluster()).pre_enqueue
    assert pre_enqueue
    assert all(isinstance(plugin, TimedPreEnqueue) for plugin in pre_enqueue)
