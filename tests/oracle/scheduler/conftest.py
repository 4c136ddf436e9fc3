"""A scheduler without its loop: runs the plugins of the recorded profile on one recorded cluster.

Every verdict and score is computed in both forms, per node and over rows, and the two must agree.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from kubeloop.informers.store import Store
from kubeloop.kube import objects
from kubeloop.kube.objects import Node, Pod, convert
from kubeloop.scheduler.cache.cache import Cache
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.interface import Code, CycleState, Rows, RowVerdicts, Status
from kubeloop.scheduler.plugins.listers import Listers
from kubeloop.scheduler.plugins.registry import DEFAULT_PLUGINS
from kubeloop.scheduler.queue.nominator import Nominator

PROFILE = {
    "pre_enqueue": ["SchedulingGates", "DynamicResources", "DefaultPreemption"],
    "pre_filter": [
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    ],
    "filter": [
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    ],
    "pre_score": [
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "VolumeBinding",
        "PodTopologySpread",
        "InterPodAffinity",
        "NodeResourcesBalancedAllocation",
    ],
    "score": [
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "VolumeBinding",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeResourcesBalancedAllocation",
        "ImageLocality",
    ],
}
WEIGHTS = {
    "DynamicResources": 2,
    "ImageLocality": 1,
    "InterPodAffinity": 2,
    "NodeAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "TaintToleration": 3,
    "VolumeBinding": 1,
}
NOW = datetime(2026, 1, 2, tzinfo=UTC)

_STORES: dict[str, tuple[str, type]] = {
    "namespaces": ("namespaces", objects.Namespace),
    "services": ("services", objects.Service),
    "replicaSets": ("replica_sets", objects.ReplicaSet),
    "statefulSets": ("stateful_sets", objects.StatefulSet),
    "replicationControllers": ("replication_controllers", objects.ReplicationController),
    "podDisruptionBudgets": ("pod_disruption_budgets", objects.PodDisruptionBudget),
    "persistentVolumes": ("persistent_volumes", objects.PersistentVolume),
    "persistentVolumeClaims": ("persistent_volume_claims", objects.PersistentVolumeClaim),
    "storageClasses": ("storage_classes", objects.StorageClass),
    "csiNodes": ("csi_nodes", objects.CSINode),
    "csiDrivers": ("csi_drivers", objects.CSIDriver),
    "csiStorageCapacities": ("csi_storage_capacities", objects.CSIStorageCapacity),
    "volumeAttachments": ("volume_attachments", objects.VolumeAttachment),
}


class FixedClock:
    def now(self) -> datetime:
        return NOW

    def time_ns(self) -> int:
        return int(NOW.timestamp() * 1e9)


class Cluster:
    """One recorded cluster with the plugins over it; also the handle the plugins get."""

    def __init__(self, cluster: dict[str, Any], plugin_names: Iterable[str] = tuple(DEFAULT_PLUGINS)) -> None:
        self.listers = Listers()
        for key, (attribute, type_) in _STORES.items():
            store: Store[Any] = Store()
            for each in cluster.get(key, ()):
                value = convert(type_, each)
                store.put(value.key, value)
            setattr(self.listers, attribute, store)
        pods: Store[Pod] = Store()
        self.listers.pods = pods
        self.cache = Cache(lambda: 0.0)
        self.snapshot = Snapshot()
        for node in cluster.get("nodes", ()):
            self.cache.add_node(convert(Node, node))
        for each in cluster.get("pods", ()):
            pod = convert(Pod, each)
            pods.put(pod.key, pod)
            self.cache.add_pod(pod)
        self.cache.update_snapshot(self.snapshot)
        self.nominator = Nominator(pods.get)
        for each in cluster.get("nominatedPods", ()):
            pod = convert(Pod, each)
            pods.put(pod.key, pod)
            self.nominator.add(PodInfo(pod), None)
        self.clock = FixedClock()
        self.rng = random.Random(0)
        self.client: Any = None
        self.recorder: Any = None
        self.traces: Any = None
        self.plugins: dict[str, Any] = {
            name: DEFAULT_PLUGINS[name].construct(DEFAULT_PLUGINS[name].args_type(), self)
            for name in plugin_names
            if name in DEFAULT_PLUGINS
        }

    # --- the handle ------------------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()

    def activate(self, pods: Iterable[Pod]) -> None:
        pass

    def run_add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        return self._run_extension("add_pod", state, pod, added, node)

    def run_remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        return self._run_extension("remove_pod", state, pod, removed, node)

    def _run_extension(
        self, what: str, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo
    ) -> Status | None:
        for plugin in self.at("pre_filter"):
            if hasattr(plugin, what) and plugin.name not in state.skip_filter:
                status: Status | None = getattr(plugin, what)(state, pod, other, node)
                if status is not None:
                    return status
        return None

    def run_filters_with_nominated_pods(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        nominated = [
            each for each in self.nominator.pods_on(node.name) if each.priority >= pod.priority and each.uid != pod.uid
        ]
        if nominated:
            with_them, state_with_them = node.clone(), state.clone()
            for each in nominated:
                with_them.add_pod(each)
                status = self.run_add_pod(state_with_them, pod, each, with_them)
                if status is not None:
                    return status
            status = self.run_filters(state_with_them, pod, with_them)
            if status is not None:
                return status
        return self.run_filters(state, pod, node)

    # --- running plugins -------------------------------------------------------------------------------------------

    def at(self, extension_point: str) -> list[Any]:
        plugins = [self.plugins[name] for name in PROFILE[extension_point] if name in self.plugins]
        return [plugin for plugin in plugins if hasattr(plugin, extension_point)]

    def run_filters(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """The first rejection, per node."""
        for plugin in self.at("filter"):
            if plugin.name not in state.skip_filter:
                status: Status | None = plugin.filter(state, pod, node)
                if status is not None:
                    return status
        return None

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        for plugin in self.at("pre_enqueue"):
            status: Status | None = plugin.pre_enqueue(pod.pod)
            if status is not None:
                return status
        return None

    def pre_filter(self, state: CycleState, pod: PodInfo) -> tuple[Status | None, set[str] | None, list[str]]:
        """(rejection, node names, the plugins that named them)."""
        names: set[str] | None = None
        naming: list[str] = []
        for plugin in self.at("pre_filter"):
            result, status = plugin.pre_filter(state, pod, self.snapshot)
            if status is not None and status.code is Code.SKIP:
                state.skip_filter.add(plugin.name)
                continue
            if status is not None:
                return status, None, naming
            if result is not None and result.node_names is not None:
                naming.append(plugin.name)
                names = set(result.node_names) if names is None else names & result.node_names
                if not names:
                    reason = f"node(s) didn't satisfy plugin(s) {sorted(naming)} simultaneously".replace("'", "")
                    reason = reason.replace("didnt", "didn't")
                    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,)), names, naming
        return None, names, naming

    def filter_rows(self, plugin: Any, state: CycleState, pod: PodInfo, rows: Rows) -> RowVerdicts | None:
        """One plugin over rows, compared with its per-node form on every row."""
        if plugin.name in state.skip_filter:
            return None
        infos = self.snapshot.node_infos
        if not hasattr(plugin, "filter_rows"):
            statuses = [plugin.filter(state, pod, infos[row]) for row in rows.tolist()]
            passed = np.array([status is None for status in statuses], np.bool_)
            return RowVerdicts(passed, lambda index: statuses[index])
        per_node = [plugin.filter(state, pod, infos[row]) for row in rows.tolist()]
        if any(status is not None and status.code is Code.ERROR for status in per_node):
            with pytest.raises(Exception, match=r".+"):
                plugin.filter_rows(state, pod, self.snapshot, rows)
            return RowVerdicts(np.array([status is None for status in per_node]), lambda index: per_node[index])
        verdicts: RowVerdicts = plugin.filter_rows(state, pod, self.snapshot, rows)
        for index, (row, status) in enumerate(zip(rows.tolist(), per_node, strict=True)):
            explained = None if verdicts.passed[index] else verdicts.explain(index)
            assert explained == status, (plugin.name, pod.key, infos[row].name)
        return verdicts

    def score_rows(self, plugin: Any, state: CycleState, pod: PodInfo, rows: Rows) -> Any:
        """Normalised scores of one plugin, raw ones compared between both forms."""
        infos = self.snapshot.node_infos
        per_node = [plugin.score(state, pod, infos[row]) for row in rows.tolist()]
        scores = np.array(per_node, np.int64)
        if hasattr(plugin, "score_rows"):
            scores = plugin.score_rows(state, pod, self.snapshot, rows)
            assert scores.dtype == np.int64
            assert scores.tolist() == per_node, (plugin.name, pod.key)
        if hasattr(plugin, "normalize_scores"):
            scores = plugin.normalize_scores(state, pod, self.snapshot, rows, scores)
        return scores

    def rows(self, names: Iterable[str]) -> Rows:
        return np.array(sorted(self.snapshot.row_of[name] for name in names), np.intp)


MakeCluster = Callable[..., Cluster]


@pytest.fixture
def make_cluster() -> MakeCluster:
    """make_cluster(case["cluster"]): the plugins of the default profile over a recorded cluster."""
    return Cluster
