"""The default profile on recorded clusters: decisions about recorded pods, without the scheduling loop.

Decisions are checked plugin by plugin, in the per-node and the array form, which must agree; then twice by framework
and algorithm as the scheduler runs them, the second time with results of the class cache.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from kubeloop.informers.store import Store
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES
from kubeloop.kube.objects import api_types, storage_types
from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import RowFilterResult
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempts.algorithm import Algorithm
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.cache import SchedulerCache
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.load import read_configuration
from kubeloop.scheduler.config.types import Profile
from kubeloop.scheduler.framework.dry_run import NodeDryRuns
from kubeloop.scheduler.framework.fit_error import FitError, NodeToStatus
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from kubeloop.scheduler.metrics import NO_METRICS
from kubeloop.scheduler.plugins.preemption.candidates import best_candidates
from kubeloop.scheduler.plugins.preemption.default_preemption import DefaultPreemption
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS
from kubeloop.scheduler.queue.nominator import Nominator
from support.objects.devices import FilledDevices
from support.simulation.set_clock import SetClock
from support.traces.disabled_recorders import DisabledPodRecorder

NOW = datetime(2026, 1, 2, tzinfo=UTC)

_STORES: dict[str, tuple[str, type]] = {
    "namespaces": ("namespaces", api_types.Namespace),
    "services": ("services", api_types.Service),
    "replicaSets": ("replica_sets", api_types.ReplicaSet),
    "statefulSets": ("stateful_sets", api_types.StatefulSet),
    "replicationControllers": ("replication_controllers", api_types.ReplicationController),
    "podDisruptionBudgets": ("pod_disruption_budgets", api_types.PodDisruptionBudget),
    "persistentVolumes": ("persistent_volumes", storage_types.PersistentVolume),
    "persistentVolumeClaims": ("persistent_volume_claims", storage_types.PersistentVolumeClaim),
    "storageClasses": ("storage_classes", storage_types.StorageClass),
    "csiNodes": ("csi_nodes", storage_types.CSINode),
    "csiDrivers": ("csi_drivers", storage_types.CSIDriver),
    "csiStorageCapacities": ("csi_storage_capacities", storage_types.CSIStorageCapacity),
    "volumeAttachments": ("volume_attachments", storage_types.VolumeAttachment),
}


class RecordedCluster:
    """A recorded cluster with the default profile; also the handle of its plugins."""

    def __init__(self, cluster: dict[str, Any]) -> None:
        self.listers = Listers()
        for key, (attribute, type_) in _STORES.items():
            store: Store[Any] = Store()
            for item in cluster.get(key, ()):
                value = convert(type_, item)
                store.put(value.key, value)
            setattr(self.listers, attribute, store)
        pods: Store[Pod] = Store()
        self.listers.pods = pods
        self.cache = SchedulerCache(lambda: 0.0)
        self.snapshot = Snapshot()
        for node in cluster.get("nodes", ()):
            self.cache.add_node(convert(Node, node))
        for item in cluster.get("pods", ()):
            pod = convert(Pod, item)
            pods.put(pod.key, pod)
            self.cache.add_pod(pod)
        self.cache.update_snapshot(self.snapshot)
        self.nominator = Nominator(pods.get)
        for item in cluster.get("nominatedPods", ()):
            pod = convert(Pod, item)
            pods.put(pod.key, pod)
            self.nominator.add(PodInfo(pod), None)
        self.clock = SetClock(NOW)
        self.rng = random.Random(0)
        self.client: Any = None
        self.recorder: Any = None
        self.traces = DisabledPodRecorder()
        self.extenders = ()
        self.metrics = NO_METRICS
        self.feature_gates = DEFAULT_FEATURE_GATES
        self.framework = Framework(default_profile(), self, IN_TREE_PLUGINS, self.nominator, WaitingPods())
        self.plugins: dict[str, Any] = dict(self.framework.plugins)
        self._devices = FilledDevices()

    # --- the handle ------------------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()

    def activate(self, pods: Iterable[Pod]) -> None:
        pass

    def preempt_unbound(self, uid: str, plugin: str) -> bool:
        return False

    def run_add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        return self.framework.node_filters.run_add_pod(state, pod, added, node)

    def run_remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        return self.framework.node_filters.run_remove_pod(state, pod, removed, node)

    def dry_runs(self, state: CycleState, pod: PodInfo) -> NodeDryRuns:
        return NodeDryRuns(self.framework.node_filters, state, pod)

    def run_filters_with_nominated_pods(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return self.framework.node_filters.run_filters_with_nominated_pods(state, pod, node)

    def cluster_devices(self) -> FilledDevices:
        return self._devices

    # --- running plugins -------------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        for plugin in self.framework.pre_enqueue:
            status = plugin.pre_enqueue(pod.pod)
            if status is not None:
                return status
        return None

    def filter_rows(self, plugin: Any, state: CycleState, pod: PodInfo, rows: Rows) -> RowFilterResult | None:
        """Return the result of one plugin for `rows`, compared with its per-node form on every row."""
        if plugin.name in state.skip_filter:
            return None
        infos = self.snapshot.node_infos
        if not hasattr(plugin, "filter_rows"):
            statuses = [plugin.filter(state, pod, infos[row]) for row in rows.tolist()]
            passed = np.array([status is None for status in statuses], np.bool_)
            return RowFilterResult(passed, lambda index: statuses[index])
        per_node = [plugin.filter(state, pod, infos[row]) for row in rows.tolist()]
        if any(status is not None and status.code is Code.ERROR for status in per_node):
            with pytest.raises(Exception, match=r".+"):
                plugin.filter_rows(state, pod, self.snapshot, rows)
            return RowFilterResult(np.array([status is None for status in per_node]), lambda index: per_node[index])
        statuses_by_plugin: RowFilterResult = plugin.filter_rows(state, pod, self.snapshot, rows)
        for index, (row, status) in enumerate(zip(rows.tolist(), per_node, strict=True)):
            explained = None if statuses_by_plugin.passed[index] else statuses_by_plugin.explain(index)
            assert explained == status, (plugin.name, pod.key, infos[row].name)
        return statuses_by_plugin

    def score_rows(self, plugin: Any, state: CycleState, pod: PodInfo, rows: Rows) -> Any:
        """Return the normalized scores of one plugin; the raw scores of both forms are compared."""
        infos = self.snapshot.node_infos
        per_node = [plugin.score(state, pod, infos[row]) for row in rows.tolist()] if hasattr(plugin, "score") else None
        scores = np.array(per_node or (), np.int64)
        if hasattr(plugin, "score_rows"):
            scores = plugin.score_rows(state, pod, self.snapshot, rows)
            assert scores.dtype == np.int64
            assert per_node is None or scores.tolist() == per_node, (plugin.name, pod.key)
        if hasattr(plugin, "normalize_scores"):
            scores = plugin.normalize_scores(state, pod, self.snapshot, rows, scores)
        return scores

    def rows(self, names: Iterable[str]) -> Rows:
        return np.array(sorted(self.snapshot.row_of[name] for name in names), np.intp)


def default_profile() -> Profile:
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return read_configuration(document).profiles[0]


def status_document(status: Status) -> dict[str, Any]:
    return {
        "plugin": status.plugin,
        "code": status.code.api_name,
        "reasons": sorted(map(without_framework_prefix, status.reasons)),
    }


def recorded_status(status: dict[str, Any]) -> dict[str, Any]:
    reasons = sorted(map(without_framework_prefix, status.get("reasons", [])))
    return {"plugin": status.get("plugin", ""), "code": status["code"], "reasons": reasons}


def without_framework_prefix(reason: str) -> str:
    """Return the reason without the prefix that the framework adds to errors."""
    return re.sub(r'^running "\w+" filter plugin: ', "", reason)


class RecordedCase:
    """A recorded case: a cluster, and decisions about incoming pods."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.name: str = case["name"]
        self.cluster = RecordedCluster(case["cluster"])
        self.node_order: list[str] = case["snapshotNodeOrder"]
        self.decisions: list[dict[str, Any]] = case["decisions"]

    async def check(self) -> None:
        assert [info.name for info in self.cluster.snapshot.node_infos] == self.node_order
        for decision in self.decisions:
            pod = PodInfo(convert(Pod, decision["pod"]))
            where = f"{self.name} {pod.key}"
            rejection = self.cluster.pre_enqueue(pod)
            expected = decision.get("preEnqueueRejected")
            assert (rejection and status_document(rejection)) == (expected and recorded_status(expected)), where
            if rejection is None:
                self.check_plugins(pod, decision, where)
                await self.check_attempt(pod, decision, where)
                await self.check_attempt(pod, decision, where)

    # --- plugin by plugin ------------------------------------------------------------------------------------------

    def check_plugins(self, pod: PodInfo, decision: dict[str, Any], where: str) -> None:
        cluster, framework, snapshot = self.cluster, self.cluster.framework, self.cluster.snapshot
        state = CycleState()
        names, rejection, prefilter_plugins = framework.filters.run_pre_filter(state, pod, snapshot)
        pre_filter = decision.get("preFilter") or {}
        if pre_filter.get("rejected"):
            assert rejection is not None, where
            assert status_document(rejection) == recorded_status(pre_filter["rejected"]), where
            return
        assert rejection is None, where
        assert state.skip_filter == set(pre_filter.get("skippedFilterPlugins", ())), where
        assert names == (frozenset(pre_filter["nodeNames"]) if "nodeNames" in pre_filter else None), where
        assert sorted(prefilter_plugins) == sorted(pre_filter.get("nodeNamesPlugins", ())), where
        infeasible = decision.get("infeasibleNodes") or {}
        if not cluster.nominator.nodes():
            self.check_filters(state, pod, infeasible, where)
        if decision.get("score"):
            self.check_scores(state, pod, decision, where)
        if decision.get("postFilter"):
            self.check_preemption(state, pod, names, decision["postFilter"], where)

    def check_filters(self, state: CycleState, pod: PodInfo, infeasible: dict[str, Any], where: str) -> None:
        """Compare the rejections by each plugin, run separately on all nodes."""
        cluster, infos = self.cluster, self.cluster.snapshot.node_infos
        excluded = {name for name, entry in infeasible.items() if entry.get("excludedByPreFilterNodeNames")}
        rows = cluster.rows(info.name for info in infos if info.name not in excluded)
        rows = cluster.snapshot.all_rows if len(rows) == len(infos) else rows
        statuses_by_plugin = {
            plugin.name: cluster.filter_rows(plugin, state, pod, rows) for plugin in cluster.framework.filters.filter
        }
        for index, row in enumerate(rows.tolist()):
            failing = {
                name: status_document(result.explain(index))
                for name, result in statuses_by_plugin.items()
                if result is not None and not result.passed[index]
            }
            first = infeasible.get(infos[row].name)
            others = (first or {}).get("alsoFailing") or {}
            expected_by_plugin = {name: recorded_status(status) for name, status in others.items()}
            if first is not None:
                expected_by_plugin[first["plugin"]] = recorded_status(first)
            assert failing == expected_by_plugin, (where, infos[row].name)

    def check_scores(self, state: CycleState, pod: PodInfo, decision: dict[str, Any], where: str) -> None:
        cluster, score = self.cluster, decision["score"]
        rows = cluster.rows(decision["feasibleNodes"])
        cluster.framework.scores.run_pre_score(state, pod, cluster.snapshot, rows)
        assert state.skip_score == set(score.get("skippedPlugins", ())), where
        totals = np.zeros(len(rows), np.int64)
        for scorer in cluster.framework.scores.scorers:
            plugin = scorer.plugin
            if plugin.name in state.skip_score:
                continue
            expected = score["plugins"][plugin.name]
            assert scorer.weight == expected["weight"]
            weighted = cluster.score_rows(plugin, state, pod, rows) * expected["weight"]
            assert weighted.tolist() == expected["scores"], (where, plugin.name)
            totals += weighted
        assert totals.tolist() == score["totals"], where

    def check_preemption(
        self, state: CycleState, pod: PodInfo, names: frozenset[str] | None, expected: dict[str, Any], where: str
    ) -> None:
        cluster, snapshot = self.cluster, self.cluster.snapshot
        plugin: DefaultPreemption = cluster.plugins["DefaultPreemption"]
        statuses_by_plugin = NodeToStatus(snapshot)
        for info in snapshot.node_infos:
            if names is None or info.name in names:
                status = cluster.run_filters_with_nominated_pods(state, pod, info)
                assert status is not None, where
                statuses_by_plugin.set(info.name, status)
        reason = plugin.ineligible_reason(pod, snapshot, statuses_by_plugin)
        assert reason == expected.get("ineligibleReason", ""), where
        if reason:
            return
        potential = list(statuses_by_plugin.nodes_with_code(Code.UNSCHEDULABLE))
        assert sorted(potential) == sorted(expected.get("potentialNodes", ())), where
        rows = statuses_by_plugin.rows_with_code(Code.UNSCHEDULABLE)
        dry_run = plugin.victim_selection.dry_run(state, pod, snapshot, rows)
        candidates = {
            candidate.node: {
                "victims": [victim.key for victim in candidate.victims],
                "numPDBViolations": candidate.pdb_violations,
            }
            for candidate in dry_run.candidates
        }
        expected_by_plugin = {
            name: {"victims": entry["victims"], "numPDBViolations": entry.get("numPDBViolations", 0)}
            for name, entry in (expected.get("candidates") or {}).items()
        }
        assert candidates == expected_by_plugin, where
        # Rejections are reported only if there are no candidates.
        others = [row for row in rows.tolist() if snapshot.node_infos[row].name not in candidates]
        rejected = plugin.victim_selection.dry_run(state, pod, snapshot, np.array(others, np.intp)).rejections
        rejections = {name: status_document(status) for name, status in rejected.items()}
        not_candidates = {name: recorded_status(entry) for name, entry in (expected.get("notCandidates") or {}).items()}
        assert rejections == not_candidates, where
        if candidates:
            best = best_candidates(dry_run.candidates, plugin._handle.clock.now())
            assert sorted(candidate.node for candidate in best) == sorted(expected["nominatedNodeOptions"]), where

    # --- as the scheduler runs it ----------------------------------------------------------------------------------

    async def check_attempt(self, pod: PodInfo, decision: dict[str, Any], where: str) -> None:
        cluster = self.cluster
        algorithm = Algorithm(
            cluster.snapshot,
            percentage_of_nodes_to_score=100,
            tie_break="random",
            extenders=(),
            rng=cluster.rng,
            now_ns=cluster.clock.time_ns,
        )
        attempt = Attempt(cluster.framework, QueuedPodInfo(pod, 0))
        if decision.get("schedulerError"):
            with pytest.raises(SchedulingError) as failed:
                await algorithm.schedule(attempt)
            # If several nodes have errors, kube-scheduler reports any of them.
            nodes = [entry for entry in (decision.get("infeasibleNodes") or {}).values() if entry["code"] == "Error"]
            possible_messages = {decision["schedulerError"], *(", ".join(entry["reasons"]) for entry in nodes)}
            assert str(failed.value) in possible_messages, where
        elif decision.get("fitError"):
            with pytest.raises(FitError) as raised:
                await algorithm.schedule(attempt)
            await self.check_fit_error(raised.value, attempt, decision, where)
        else:
            node = await algorithm.schedule(attempt)
            assert node in decision["possibleHosts"], where
            if not pod.pod.status.nominated_node_name:  # otherwise that node is tried first, alone
                assert attempt.facts.feasible == len(decision["feasibleNodes"]), where

    async def check_fit_error(self, error: FitError, attempt: Attempt, decision: dict[str, Any], where: str) -> None:
        cluster, expected = self.cluster, decision["postFilter"]
        assert str(error) == decision["fitError"], where
        plugins = error.diagnosis.unschedulable_plugins | error.diagnosis.pending_plugins
        assert sorted(plugins) == sorted(decision["unschedulablePlugins"]), where
        statuses_by_plugin = error.diagnosis.node_to_status
        result, status = await cluster.framework.filters.run_post_filter(
            attempt.state, attempt.pod_info, cluster.snapshot, statuses_by_plugin
        )
        assert status.code.api_name == expected["code"], where
        assert status.message == expected.get("message", ""), where
        assert (result is not None) == expected["resultPresent"], where
        if status.code is Code.SUCCESS:
            assert result is not None
            assert result.nominated_node_name in expected["nominatedNodeOptions"], where
            cluster.plugins["DefaultPreemption"].forget(attempt.pod_info.uid)
        error.diagnosis.post_filter_message = status.message
        assert str(error) == decision["failedSchedulingMessage"], where


@pytest.fixture
def make_cluster() -> Callable[[dict[str, Any]], RecordedCluster]:
    """Return the constructor: make_cluster(case["cluster"])."""
    return RecordedCluster


@pytest.fixture
def make_case() -> Callable[[dict[str, Any]], RecordedCase]:
    return RecordedCase
