"""Scheduling attempts compared with kube-scheduler: node, rejections, messages and nominated nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.informers.store import Store
from kubeloop.kube.objects import resources
from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.kube.objects.resources import PODS, Resource
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.framework.fit_error import FitError
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.scheduler.framework.profile_plugins import plugins_at
from kubeloop.scheduler.scheduler import Scheduler
from support.scheduling.scheduler_cluster import new_scheduler

KINDS: dict[str, Resource[Any]] = {
    "namespaces": resources.NAMESPACES,
    "services": resources.SERVICES,
    "replicaSets": resources.REPLICA_SETS,
    "statefulSets": resources.STATEFUL_SETS,
    "replicationControllers": resources.REPLICATION_CONTROLLERS,
    "podDisruptionBudgets": resources.POD_DISRUPTION_BUDGETS,
    "persistentVolumes": resources.PERSISTENT_VOLUMES,
    "persistentVolumeClaims": resources.PERSISTENT_VOLUME_CLAIMS,
    "storageClasses": resources.STORAGE_CLASSES,
    "csiNodes": resources.CSI_NODES,
    "csiDrivers": resources.CSI_DRIVERS,
    "csiStorageCapacities": resources.CSI_STORAGE_CAPACITIES,
    "volumeAttachments": resources.VOLUME_ATTACHMENTS,
}
BY_NAMESPACE = "namespace"


class Synced:
    async def wait_synced(self) -> None: ...


class Informer:
    has_synced = True

    def __init__(self) -> None:
        self.store: Store[Any] = Store()
        self.store.add_index(BY_NAMESPACE, lambda obj: [obj.metadata.namespace])

    def add_handler(self, handler: Any, **_: Any) -> Synced:
        return Synced()


class ClusterInformers:
    def __init__(self) -> None:
        self.informers: dict[str, Informer] = {}

    def informer(self, resource: Resource[Any], **_: Any) -> Any:
        return self.informers.setdefault(resource.plural, Informer())

    def event(self, *_: Any, **__: Any) -> None: ...


def scheduler_of(cluster: dict[str, Any], clock: Any, class_cache: bool) -> Scheduler:
    informers = ClusterInformers()
    scheduler = new_scheduler(informers, SchedulerConfiguration(class_cache=class_cache), clock)
    for name, resource in KINDS.items():
        store = informers.informer(resource).store
        for item in cluster.get(name, []):
            obj = convert(resource.type, item)
            store.put(obj.key, obj)
    pods = informers.informer(PODS).store
    for item in cluster.get("nodes", []):
        scheduler.cache.add_node(convert(Node, item))
    for item in cluster.get("pods", []):
        pod = convert(Pod, item)
        scheduler.cache.add_pod(pod)
        pods.put(pod.key, pod)
    for item in cluster.get("nominatedPods", []):
        pod = convert(Pod, item)
        pods.put(pod.key, pod)
        scheduler.queue.nominator.add(PodInfo(pod), None)
    return scheduler


def status_document(status: Status) -> dict[str, Any]:
    return {"plugin": status.plugin, "code": status.code.api_name, "reasons": sorted(status.reasons)}


def expected_infeasible(decision: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {"plugin": entry["plugin"], "code": entry["code"], "reasons": sorted(entry["reasons"])}
        for name, entry in (decision.get("infeasibleNodes") or {}).items()
        if not entry.get("excludedByPreFilterNodeNames")
    }


def possible_errors(decision: dict[str, Any]) -> set[str]:
    """Return the possible messages; if several nodes have errors, kube-scheduler reports any of them."""
    on_nodes = (status for status in (decision.get("infeasibleNodes") or {}).values() if status["code"] == "Error")
    return {decision["schedulerError"], *(", ".join(status["reasons"]) for status in on_nodes)}


async def check_decision(scheduler: Scheduler, decision: dict[str, Any], context: str) -> str:
    """Compare one attempt with the recorded decision. Returns its outcome, for counting."""
    framework = scheduler.frameworks["default-scheduler"]
    pod = PodInfo(convert(Pod, decision["pod"]))
    if "preEnqueueRejected" in decision:
        rejections = [plugin.pre_enqueue(pod.pod) for plugin in framework.pre_enqueue]
        assert [status.plugin for status in rejections if status is not None] == [
            decision["preEnqueueRejected"]["plugin"]
        ]
        return "gated"
    scheduler.cache.update_snapshot(scheduler.snapshot)
    attempt = Attempt(framework, QueuedPodInfo(pod, 0))
    outcome = await run_attempt(scheduler, attempt)
    if isinstance(outcome, SchedulingError):
        assert str(outcome) in possible_errors(decision), context
        return "error"
    if isinstance(outcome, FitError):
        await check_fit_error(scheduler, attempt, outcome, decision, context)
        return "unschedulable"
    assert outcome in decision["possibleHosts"], context
    if pod.pod.status.nominated_node_name in decision["feasibleNodes"]:
        return "fits on the nominated node"
    assert attempt.facts.feasible == len(decision["feasibleNodes"]), context
    if attempt.facts.feasible > 1:
        assert (attempt.facts.best_nodes[0], attempt.facts.best_totals[0]) == (
            outcome,
            max(decision["score"]["totals"]),
        ), context
    return "fits"


async def run_attempt(scheduler: Scheduler, attempt: Attempt) -> str | FitError | SchedulingError:
    """Return the chosen node, or why there is none."""
    try:
        return await scheduler.algorithm.schedule(attempt)
    except (FitError, SchedulingError) as error:
        return error


async def check_fit_error(
    scheduler: Scheduler, attempt: Attempt, error: FitError, decision: dict[str, Any], context: str
) -> None:
    diagnosis = error.diagnosis
    assert str(error) == decision["fitError"], context
    if not (decision.get("preFilter") or {}).get("rejected"):
        rejections = {name: status_document(status) for name, status in diagnosis.node_to_status.items()}
        assert rejections == expected_infeasible(decision), context
    assert sorted(diagnosis.unschedulable_plugins) == decision["unschedulablePlugins"], context
    result, status = await attempt.framework.filters.run_post_filter(
        attempt.state, attempt.pod_info, scheduler.snapshot, diagnosis.node_to_status
    )
    diagnosis.post_filter_message = status.message
    assert str(error) == decision["failedSchedulingMessage"], context
    expected = decision["postFilter"]
    assert (result is not None) == expected["resultPresent"], context
    nominated = result.nominated_node_name if result is not None else ""
    assert nominated in (expected.get("nominatedNodeOptions") or [""]), context


@pytest.mark.parametrize("class_cache", [True, False], ids=["class cache", "no class cache"])
@pytest.mark.parametrize("name", ["default_profile", "volumes", "preemption"])
async def test_attempts_match_kube_scheduler(records, clock, name, class_cache, caplog):
    caplog.set_level("CRITICAL")
    outcomes: dict[str, int] = {}
    for record in records(f"scheduler/{name}.jsonl.gz"):
        scheduler = scheduler_of(record["cluster"], clock, class_cache)
        for number, decision in enumerate(record["decisions"]):
            outcome = await check_decision(scheduler, decision, f"{record['name']} decision {number}")
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes


async def test_default_profile_matches_kube_scheduler(oracle_dir, clock):
    recorded = json.loads((oracle_dir / "scheduler" / "profile.json").read_text())
    framework = scheduler_of({}, clock, class_cache=True).frameworks["default-scheduler"]
    (profile,) = SchedulerConfiguration().profiles
    names = {
        point: [ref.name for ref in plugins_at(point, profile, framework.plugins)] for point in recorded["plugins"]
    }
    assert names == {point: plugins or [] for point, plugins in recorded["plugins"].items()}
    assert {scorer.name: scorer.weight for scorer in framework.scores.scorers} == recorded["scoreWeights"]
