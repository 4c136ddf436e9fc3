"""NodeDeclaredFeatures: features that restart rules require."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from support.plugin_cluster import rejections

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
