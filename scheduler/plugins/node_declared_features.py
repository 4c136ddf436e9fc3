"""NodeDeclaredFeatures: the node's kubelet must declare the features that the pod requires.

Two requirements are inferred from a pod: a container restart rule with the action RestartAllContainers, and a user
namespace with the host's network. Without the feature gate NodeDeclaredFeatures the plugin accepts all nodes.
Source: plugins/nodedeclaredfeatures and component-helpers/nodedeclaredfeatures of v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import NODE, POD, UPDATE, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.extension_points import PreFilterReturn, RowFilterResult
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import (
    explain_as,
    on_event,
    select_rows,
    skip,
    unresolvable,
)
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs

_RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
_USER_NAMESPACES_HOST_NETWORK = "UserNamespacesHostNetworkSupport"


def needed_features(pod: Pod) -> frozenset[str]:
    """Return the features that a node must declare to run `pod`."""
    spec = pod.spec
    features = set()
    for container in (*spec.containers, *spec.init_containers):
        if any(rule.get("action") == "RestartAllContainers" for rule in container.restart_policy_rules):
            features.add(_RESTART_ALL_CONTAINERS)
            break
    if spec.host_network and spec.host_users is False:
        features.add(_USER_NAMESPACES_HOST_NETWORK)
    return frozenset(features)


class NodeDeclaredFeatures:
    name = "NodeDeclaredFeatures"
    row_local = True
    ignores_other_pods = True

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._enabled = handle.feature_gates.enabled("NodeDeclaredFeatures")
        self._rejection = unresolvable(self.name, "node(s) didn't match Pod's required features")

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> PreFilterReturn:
        return None, None if self._enabled and needed_features(pod.pod) else skip(self.name)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if not self._enabled:
            return None
        declared = node.node.status.declared_features if node.node is not None else ()
        return None if needed_features(pod.pod) <= set(declared) else self._rejection

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        if not self._enabled:
            return RowFilterResult(np.ones(len(rows), np.bool_), explain_as(self._rejection))
        needed = needed_features(pod.pod)
        declared = snapshot.columns.declared_features
        sufficient = np.fromiter((needed <= features for features in declared.values), np.bool_, len(declared.values))
        return RowFilterResult(sufficient[select_rows(declared.codes, rows, snapshot)], explain_as(self._rejection))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        if not self._enabled:
            return ()
        return (
            on_event(NODE, ActionType.ADD | ActionType.UPDATE_NODE_DECLARED_FEATURE, self._after_node_change),
            on_event(POD, UPDATE, self._after_pod_update),
        )

    def _after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        if old is not None and new is not None and old.status.declared_features == new.status.declared_features:
            return Hint.SKIP
        return Hint.QUEUE

    def _after_pod_update(self, pod: Pod, old: Any, new: Any) -> Hint:
        """Return QUEUE only if this pod's own required features changed."""
        if new is None or new.metadata.uid != pod.metadata.uid:
            return Hint.SKIP
        return Hint.QUEUE if old is None or needed_features(old) != needed_features(new) else Hint.SKIP
