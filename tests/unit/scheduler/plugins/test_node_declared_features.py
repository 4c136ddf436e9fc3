"""NodeDeclaredFeatures: features that restart rules require."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from support.scheduling.plugin_cluster import rejections

FEATURE = "RestartAllContainersOnContainerExits"


def test_nodes_without_the_required_feature_are_rejected(plugin_cluster: Any, node: Any, pod: Any) -> None:
    with_feature = node("with")
    status = msgspec.structs.replace(with_feature.status, declared_features=(FEATURE,))
    cluster = plugin_cluster([msgspec.structs.replace(with_feature, status=status), node("without")])
    plugin = NodeDeclaredFeatures(plugin_args.NoArgs(), cluster)
    container = {"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}
    assert rejections(plugin, cluster, pod("p", containers=[container])) == {
        "without": ("node(s) didn't match Pod's required features",)
    }
    assert rejections(plugin, cluster, pod("q")) == {}


def test_user_namespaces_with_the_host_network_require_a_feature(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    plugin = NodeDeclaredFeatures(plugin_args.NoArgs(), cluster)
    reason = ("node(s) didn't match Pod's required features",)
    assert rejections(plugin, cluster, pod("p", hostNetwork=True, hostUsers=False)) == {"a": reason}
    assert rejections(plugin, cluster, pod("q", hostNetwork=True, hostUsers=True)) == {}
    assert rejections(plugin, cluster, pod("r", hostUsers=False)) == {}


@pytest.mark.parametrize("enabled", [False, True])
def test_without_its_feature_gate_the_plugin_accepts_all_nodes(
    enabled: bool, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("a")], feature_gates={"NodeDeclaredFeatures": enabled})
    plugin = NodeDeclaredFeatures(plugin_args.NoArgs(), cluster)
    incoming = PodInfo(pod("p", containers=[{"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]))
    state, snapshot = CycleState(), cluster.snapshot
    _, skipped = plugin.pre_filter(state, incoming, snapshot)
    assert (skipped is None) is enabled
    assert (plugin.filter(state, incoming, snapshot.node_infos[0]) is None) is not enabled
    assert plugin.filter_rows(state, incoming, snapshot, snapshot.all_rows).passed.tolist() == [not enabled]
    assert bool(plugin.events_to_register()) is enabled
