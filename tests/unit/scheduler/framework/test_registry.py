"""Creation of plugins by name."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.errors import UserError
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.framework.registry import create_plugin
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS


def test_plugin_gets_default_arguments(plugin_cluster: Any) -> None:
    created: list[Any] = []

    class Recording:
        name = "NodeResourcesFit"

        def __init__(self, args: Any, handle: Any) -> None:
            created.append((args, handle))

    handle = plugin_cluster()
    create_plugin("NodeResourcesFit", None, handle, {"NodeResourcesFit": Recording})
    assert created == [(plugin_args.NodeResourcesFitArgs(), handle)]


def test_plugin_with_another_name_raises(plugin_cluster: Any) -> None:
    with pytest.raises(UserError, match="the scheduler plugin 'Other' has the name 'NodeName'"):
        create_plugin("Other", {}, plugin_cluster(), {"Other": IN_TREE_PLUGINS["NodeName"]})


def test_registered_names_are_the_plugins_names(plugin_cluster: Any) -> None:
    handle = plugin_cluster()
    for name in IN_TREE_PLUGINS.keys() - {"RequestedToCapacityRatio"}:  # needs arguments
        assert create_plugin(name, None, handle, IN_TREE_PLUGINS).name == name
