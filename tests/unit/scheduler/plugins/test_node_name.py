"""NodeName: spec.nodeName of a pending pod."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.node_name import NodeName
from support.scheduling.plugin_cluster import rejections


@pytest.mark.parametrize(
    ("node_name", "feasible"),
    [
        pytest.param("", {"a", "b", "c", "d", "e"}, id="not set"),
        pytest.param("b", {"b"}, id="existing node"),
        pytest.param("x", set(), id="unknown node"),
    ],
)
def test_only_the_named_node_passes(
    node_name: str, feasible: set[str], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node(name) for name in "abcde"])
    plugin = NodeName(plugin_args.NoArgs(), cluster)
    assert set("abcde") - rejections(plugin, cluster, pod("p", node_name)).keys() == feasible
