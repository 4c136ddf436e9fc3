"""NodePorts: conflicts of host ports, with and without host IPs."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.events import Hint
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.node_ports import NodePorts, host_ports_conflict
from support.scheduling.plugin_cluster import rejections


@pytest.mark.parametrize(
    ("requested", "used", "conflict"),
    [
        pytest.param(("0.0.0.0", "TCP", 80), ("0.0.0.0", "TCP", 80), True, id="same port"),
        pytest.param(("0.0.0.0", "TCP", 80), ("0.0.0.0", "TCP", 81), False, id="other port"),
        pytest.param(("0.0.0.0", "TCP", 80), ("0.0.0.0", "UDP", 80), False, id="other protocol"),
        pytest.param(("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), False, id="other address"),
        pytest.param(("10.0.0.1", "TCP", 80), ("0.0.0.0", "TCP", 80), True, id="all addresses used"),
        pytest.param(("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", 80), True, id="all addresses requested"),
    ],
)
def test_host_ports_conflict(requested: Any, used: Any, conflict: bool) -> None:
    assert host_ports_conflict({requested}, {used}) == conflict


def test_nodes_with_used_ports_are_rejected(plugin_cluster: Any, node: Any, pod: Any) -> None:
    ports = [{"containerPort": 80, "hostPort": 80}]
    existing = pod("existing", "a", ports=ports)
    cluster = plugin_cluster([node("a"), node("b")], [existing])
    plugin = NodePorts(plugin_args.NoArgs(), cluster)
    incoming = pod("incoming", ports=ports)
    assert rejections(plugin, cluster, incoming) == {
        "a": ("node(s) didn't have free ports for the requested pod ports",)
    }
    assert rejections(plugin, cluster, pod("without")) == {}
    assert plugin._after_pod_delete(incoming, existing, None) is Hint.QUEUE
    assert plugin._after_pod_delete(incoming, pod("other", "a"), None) is Hint.SKIP
