"""Plugins for pod groups: they can be enabled, and take no part in scheduling."""

from __future__ import annotations

import pytest

from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.types import EXTENSION_POINTS, Profile
from kubeloop.scheduler.framework.profile_plugins import implements, plugins_at
from kubeloop.scheduler.plugins.pod_groups import GangScheduling, PodGroupPodsCount, TopologyPlacementGenerator


@pytest.mark.parametrize("plugin", [GangScheduling, PodGroupPodsCount, TopologyPlacementGenerator])
def test_enabled_at_its_points_and_run_at_none(plugin):
    profile = Profile(multi_point=PluginSet((PluginRef(plugin.name),)))
    enabled = [point for point in EXTENSION_POINTS if plugins_at(point, profile, {plugin.name: plugin})]
    assert sorted(enabled) == sorted(plugin.no_op_points)
    assert not any(implements(plugin, point) for point in EXTENSION_POINTS)
