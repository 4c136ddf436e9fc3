"""Plugins of the scheduler of a process."""

from __future__ import annotations

import pytest

from kubeloop.process.control_plane.scheduler_plugins import plugins_for
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.types import Profile, SchedulerConfiguration
from kubeloop.scheduler.legacy_policy.plugins import ALL_PLUGINS
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS


def test_default_profiles_need_in_tree_plugins_only():
    assert plugins_for(SchedulerConfiguration().profiles) is IN_TREE_PLUGINS


@pytest.mark.parametrize("fields", [
    pytest.param({"points": {"filter": PluginSet((PluginRef("NodeLabel"),))}}, id="at one extension point"),
    pytest.param({"multi_point": PluginSet((PluginRef("NodeLabel"),))}, id="multiPoint")])  # fmt: skip
def test_profile_with_legacy_plugin_has_all_plugins(fields):
    assert plugins_for([Profile(), Profile("other", **fields)]) is ALL_PLUGINS
