"""A scheduler without its loop: decides about recorded pods on a recorded cluster, by the default profile.

Decisions are checked three ways: plugin by plugin, in both forms (per node and over rows), which must agree; and by
the framework and algorithm as the scheduler runs them, twice, so that the second answer comes from the class cache.
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
from kubeloop.kube.objects import api_types, storage_types
from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.algorithm import Algorithm
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import RowFilterResult
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.arrays import Rows
from kubeloop.scheduler.cache.cache import Cache
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.load import read_configuration
from kubeloop.scheduler.config.types import Profile
from kubeloop.scheduler.framework.dry_run import NodeDryRuns
from kubeloop.scheduler.framework.fit_error import FitError, NodeToStatus
from kubeloop.scheduler.framework.runtime import Framework, SchedulingError
from kubeloop.scheduler.plugins.default_preemption import DefaultPreemption, best_candidates
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.tracing.recording.pod_recorder import AttemptFacts, NoopRecorder

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


class FixedClock:
    def now(self) -> datetime:
        return NOW

    def time_ns(self) -> int:
        return int(NOW.timestamp() * 1e9)


class Cluster:
    """One recorded cluster with the default profile over it; also the handle its plugins get."""

    def __init__(self, cluster: dict[str, Any]) -> None:
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
        self.traces = NoopRecorder()
        self.extenders = ()
        self.metrics = None
        self.framework = Framework(default_profile(), self, lambda: self.nominator, registry=IN_TREE_PLUGINS)
        self.plugins: dict[str, Any] = dict(self.framework.plugins)

    # --- the handle ------------------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()

    def activate(self, pods: Iterable[Pod]) -> None:
        pass

    def waiting_pod(self, uid: str) -> None:
        return None

    def run_add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        return self.framework.run_add_pod(state, pod, added, node)

    def run_remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        return self.framework.run_remove_pod(state, pod, removed, node)

    def dry_runs(self, state: CycleState, pod: PodInfo) -> NodeDryRuns:
        return NodeDryRuns(self.framework, state, pod)

    def run_filters_with_nominated_pods(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return self.framework.run_filters_with_nominated_pods(state, pod, node)

    # --- running plugins -------------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        for plugin in self.framework.pre_enqueue:
            status = plugin.pre_enqueue(pod.pod)
            if status is not None:
                return status
        return None

    def filter_rows(self, plugin: Any, state: CycleState, pod: PodInfo, rows: Rows) -> RowFilterResult | None:
        """One plugin over rows, compared with its per-node form on every row."""
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
        verdicts: RowFilterResult = plugin.filter_rows(state, pod, self.snapshot, rows)
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


def default_profile() -> Profile:
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return read_configuration(document).profiles[0]


def as_recorded(status: Status) -> dict[str, Any]:
    return {"plugin": status.plugin, "code": status.code.api_name, "reasons": sorted(map(unprefixed, status.reasons))}


def recorded(status: dict[str, Any]) -> dict[str, Any]:
    reasons = sorted(map(unprefixed, status.get("reasons", [])))
    return {"plugin": status.get("plugin", ""), "code": status["code"], "reasons": reasons}


def unprefixed(reason: str) -> str:
    """Without what the framework puts before the text of an error."""
    return re.sub(r'^running "\w+" filter plugin: ', "", reason)


class Case:
    """One recorded case: a cluster, and decisions about incoming pods."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.name: str = case["name"]
        self.cluster = Cluster(case["cluster"])
        self.node_order: list[str] = case["snapshotNodeOrder"]
        self.decisions: list[dict[str, Any]] = case["decisions"]

    async def check(self) -> None:
        assert [info.name for info in self.cluster.snapshot.node_infos] == self.node_order
        for decision in self.decisions:
            pod = PodInfo(convert(Pod, decision["pod"]))
            about = f"{self.name} {pod.key}"
            gated = self.cluster.pre_enqueue(pod)
            expected = decision.get("preEnqueueRejected")
            assert (gated and as_recorded(gated)) == (expected and recorded(expected)), about
            if gated is None:
                self.check_plugins(pod, decision, about)
                await self.check_attempt(pod, decision, about)
                await self.check_attempt(pod, decision, about)

    # --- plugin by plugin ------------------------------------------------------------------------------------------

    def check_plugins(self, pod: PodInfo, decision: dict[str, Any], about: str) -> None:
        cluster, framework, snapshot = self.cluster, self.cluster.framework, self.cluster.snapshot
        state = CycleState()
        names, rejection, naming = framework.run_pre_filter(state, pod, snapshot)
        pre_filter = decision.get("preFilter") or {}
        if pre_filter.get("rejected"):
            assert rejection is not None, about
            assert as_recorded(rejection) == recorded(pre_filter["rejected"]), about
            return
        assert rejection is None, about
        assert state.skip_filter == set(pre_filter.get("skippedFilterPlugins", ())), about
        assert names == (frozenset(pre_filter["nodeNames"]) if "nodeNames" in pre_filter else None), about
        assert sorted(naming) == sorted(pre_filter.get("nodeNamesPlugins", ())), about
        infeasible = decision.get("infeasibleNodes") or {}
        if not cluster.nominator.nodes():
            self.check_filters(state, pod, infeasible, about)
        if decision.get("score"):
            self.check_scores(state, pod, decision, about)
        if decision.get("postFilter"):
            self.check_preemption(state, pod, names, decision["postFilter"], about)

    def check_filters(self, state: CycleState, pod: PodInfo, infeasible: dict[str, Any], about: str) -> None:
        """What each plugin says of each node when run on its own."""
        cluster, infos = self.cluster, self.cluster.snapshot.node_infos
        left_out = {name for name, each in infeasible.items() if each.get("excludedByPreFilterNodeNames")}
        rows = cluster.rows(info.name for info in infos if info.name not in left_out)
        rows = cluster.snapshot.all_rows if len(rows) == len(infos) else rows
        verdicts = {plugin.name: cluster.filter_rows(plugin, state, pod, rows) for plugin in cluster.framework.filter}
        for index, row in enumerate(rows.tolist()):
            failing = {
                name: as_recorded(verdict.explain(index))
                for name, verdict in verdicts.items()
                if verdict is not None and not verdict.passed[index]
            }
            first = infeasible.get(infos[row].name)
            others = (first or {}).get("alsoFailing") or {}
            wanted = {name: recorded(status) for name, status in others.items()}
            if first is not None:
                wanted[first["plugin"]] = recorded(first)
            assert failing == wanted, (about, infos[row].name)

    def check_scores(self, state: CycleState, pod: PodInfo, decision: dict[str, Any], about: str) -> None:
        cluster, score = self.cluster, decision["score"]
        rows = cluster.rows(decision["feasibleNodes"])
        cluster.framework.run_pre_score(state, pod, cluster.snapshot, rows)
        assert state.skip_score == set(score.get("skippedPlugins", ())), about
        totals = np.zeros(len(rows), np.int64)
        for plugin in cluster.framework.score:
            if plugin.name in state.skip_score:
                continue
            expected = score["plugins"][plugin.name]
            assert cluster.framework.weights[plugin.name] == expected["weight"]
            weighted = cluster.score_rows(plugin, state, pod, rows) * expected["weight"]
            assert weighted.tolist() == expected["scores"], (about, plugin.name)
            totals += weighted
        assert totals.tolist() == score["totals"], about

    def check_preemption(
        self, state: CycleState, pod: PodInfo, names: frozenset[str] | None, expected: dict[str, Any], about: str
    ) -> None:
        cluster, snapshot = self.cluster, self.cluster.snapshot
        plugin: DefaultPreemption = cluster.plugins["DefaultPreemption"]
        verdicts = NodeToStatus(snapshot)
        for info in snapshot.node_infos:
            if names is None or info.name in names:
                status = cluster.run_filters_with_nominated_pods(state, pod, info)
                assert status is not None, about
                verdicts.set(info.name, status)
        reason = plugin.ineligible_reason(pod, snapshot, verdicts)
        assert reason == expected.get("ineligibleReason", ""), about
        if reason:
            return
        potential = list(verdicts.nodes_with_code(Code.UNSCHEDULABLE))
        assert sorted(potential) == sorted(expected.get("potentialNodes", ())), about
        dry_run = plugin.dry_run(state, pod, snapshot, potential)
        candidates = {
            each.node: {"victims": [victim.key for victim in each.victims], "numPDBViolations": each.pdb_violations}
            for each in dry_run.candidates
        }
        wanted = {
            name: {"victims": each["victims"], "numPDBViolations": each.get("numPDBViolations", 0)}
            for name, each in (expected.get("candidates") or {}).items()
        }
        assert candidates == wanted, about
        rejections = {name: as_recorded(status) for name, status in dry_run.rejections.items()}
        not_candidates = {name: recorded(each) for name, each in (expected.get("notCandidates") or {}).items()}
        assert rejections == not_candidates, about
        if candidates:
            best = best_candidates(dry_run.candidates, plugin._handle.clock.now())
            assert sorted(each.node for each in best) == sorted(expected["nominatedNodeOptions"]), about

    # --- as the scheduler runs it ----------------------------------------------------------------------------------

    async def check_attempt(self, pod: PodInfo, decision: dict[str, Any], about: str) -> None:
        cluster, state = self.cluster, CycleState()
        algorithm = Algorithm(
            cluster.snapshot,
            percentage_of_nodes_to_score=100,
            tie_break="random",
            extenders=(),
            rng=cluster.rng,
            traces=cluster.traces,
        )
        facts = AttemptFacts("unschedulable")
        if decision.get("schedulerError"):
            with pytest.raises(SchedulingError) as failed:
                await algorithm.schedule(cluster.framework, state, pod, facts)
            # If several nodes end in an error, which of them is told is chance.
            nodes = [each for each in (decision.get("infeasibleNodes") or {}).values() if each["code"] == "Error"]
            told = {decision["schedulerError"], *(", ".join(each["reasons"]) for each in nodes)}
            assert str(failed.value) in told, about
        elif decision.get("fitError"):
            with pytest.raises(FitError) as raised:
                await algorithm.schedule(cluster.framework, state, pod, facts)
            await self.check_fit_error(raised.value, state, pod, decision, about)
        else:
            placement = await algorithm.schedule(cluster.framework, state, pod, facts)
            assert placement.node in decision["possibleHosts"], about
            if not pod.pod.status.nominated_node_name:  # else that node is tried first, alone
                assert placement.feasible == len(decision["feasibleNodes"]), about

    async def check_fit_error(
        self, error: FitError, state: CycleState, pod: PodInfo, decision: dict[str, Any], about: str
    ) -> None:
        cluster, expected = self.cluster, decision["postFilter"]
        assert str(error) == decision["fitError"], about
        plugins = error.diagnosis.unschedulable_plugins | error.diagnosis.pending_plugins
        assert sorted(plugins) == sorted(decision["unschedulablePlugins"]), about
        verdicts = error.diagnosis.node_to_status
        result, status = await cluster.framework.run_post_filter(state, pod, cluster.snapshot, verdicts)
        assert status.code.api_name == expected["code"], about
        assert status.message == expected.get("message", ""), about
        assert (result is not None) == expected["resultPresent"], about
        if status.code is Code.SUCCESS:
            assert result is not None
            assert result.nominated_node_name in expected["nominatedNodeOptions"], about
            cluster.plugins["DefaultPreemption"].forget(pod.uid)
        error.diagnosis.post_filter_message = status.message
        assert str(error) == decision["failedSchedulingMessage"], about


@pytest.fixture
def make_cluster() -> Callable[[dict[str, Any]], Cluster]:
    """make_cluster(case["cluster"]): the plugins of the default profile over a recorded cluster."""
    return Cluster


@pytest.fixture
def make_case() -> Callable[[dict[str, Any]], Case]:
    return Case
