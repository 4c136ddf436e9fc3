"""Whole scheduling attempts, as the scheduler runs them, against kube-scheduler's: node, reasons, words, nominees."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kubeloop.informers.store import Store
from kubeloop.kube.objects import resources
from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.kube.objects.resources import PODS, Resource
from kubeloop.scheduler.algorithm import Placement
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.framework.fit_error import FitError
from kubeloop.scheduler.framework.runtime import SchedulingError
from kubeloop.scheduler.scheduler import Scheduler
from kubeloop.tracing.recording.pod_recorder import AttemptFacts, NoopRecorder

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
    def __init__(self) -> None:
        self.store: Store[Any] = Store()
        self.store.add_index(BY_NAMESPACE, lambda obj: [obj.metadata.namespace])

    def add_handler(self, handler: Any) -> Synced:
        return Synced()


class Informers:
    def __init__(self) -> None:
        self.made: dict[str, Informer] = {}

    def informer(self, resource: Resource[Any], **_: Any) -> Any:
        return self.made.setdefault(resource.plural, Informer())

    def event(self, *_: Any) -> None: ...


def scheduler_of(cluster: dict[str, Any], clock: Any, class_cache: bool) -> Scheduler:
    informers = Informers()
    scheduler = Scheduler(
        informers,  # type: ignore[arg-type]
        informers,  # type: ignore[arg-type]
        config=SchedulerConfiguration(class_cache=class_cache),
        clock=clock,
        rng=random.Random(1),
        recorder=informers,
        traces=NoopRecorder(),
    )
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


def shown(status: Status) -> dict[str, Any]:
    return {"plugin": status.plugin, "code": status.code.api_name, "reasons": sorted(status.reasons)}


def expected_infeasible(decision: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {"plugin": entry["plugin"], "code": entry["code"], "reasons": sorted(entry["reasons"])}
        for name, entry in (decision.get("infeasibleNodes") or {}).items()
        if not entry.get("excludedByPreFilterNodeNames")
    }


def possible_errors(decision: dict[str, Any]) -> set[str]:
    """If several nodes end in an error, which of them is told is chance."""
    on_nodes = (each for each in (decision.get("infeasibleNodes") or {}).values() if each["code"] == "Error")
    return {decision["schedulerError"], *(", ".join(each["reasons"]) for each in on_nodes)}


async def check(scheduler: Scheduler, decision: dict[str, Any], where: str) -> str:
    """Returns what the attempt came to."""
    framework = scheduler.frameworks["default-scheduler"]
    pod = PodInfo(convert(Pod, decision["pod"]))
    if "preEnqueueRejected" in decision:
        refusals = [plugin.pre_enqueue(pod.pod) for plugin in framework.pre_enqueue]
        assert [each.plugin for each in refusals if each is not None] == [decision["preEnqueueRejected"]["plugin"]]
        return "gated"
    scheduler.cache.update_snapshot(scheduler.snapshot)
    state, facts = CycleState(), AttemptFacts(result="error")
    outcome = await attempt(scheduler, state, pod, facts)
    if isinstance(outcome, SchedulingError):
        assert str(outcome) in possible_errors(decision), where
        return "error"
    if isinstance(outcome, FitError):
        await check_failure(scheduler, state, pod, outcome, decision, where)
        return "does not fit"
    assert outcome.node in decision["possibleHosts"], where
    if pod.pod.status.nominated_node_name in decision["feasibleNodes"]:
        return "fits where it is nominated"
    assert outcome.feasible == len(decision["feasibleNodes"]), where
    if outcome.feasible > 1:
        assert facts.scores[0] == (outcome.node, max(decision["score"]["totals"])), where
    return "fits"


async def attempt(
    scheduler: Scheduler, state: CycleState, pod: PodInfo, facts: AttemptFacts
) -> Placement | FitError | SchedulingError:
    framework = scheduler.frameworks["default-scheduler"]
    try:
        return await scheduler._algorithm.schedule(framework, state, pod, facts)
    except (FitError, SchedulingError) as error:
        return error


async def check_failure(
    scheduler: Scheduler, state: CycleState, pod: PodInfo, error: FitError, decision: dict[str, Any], where: str
) -> None:
    diagnosis = error.diagnosis
    assert str(error) == decision["fitError"], where
    if not (decision.get("preFilter") or {}).get("rejected"):
        verdicts = {name: shown(status) for name, status in diagnosis.node_to_status.items()}
        assert verdicts == expected_infeasible(decision), where
    assert sorted(diagnosis.unschedulable_plugins) == decision["unschedulablePlugins"], where
    framework = scheduler.frameworks["default-scheduler"]
    result, status = await framework.run_post_filter(state, pod, scheduler.snapshot, diagnosis.node_to_status)
    diagnosis.post_filter_message = status.message
    assert str(error) == decision["failedSchedulingMessage"], where
    expected = decision["postFilter"]
    assert (result is not None) == expected["resultPresent"], where
    nominated = result.nominated_node_name if result is not None else ""
    assert nominated in (expected.get("nominatedNodeOptions") or [""]), where


@pytest.mark.parametrize("class_cache", [True, False], ids=["class cache", "afresh"])
@pytest.mark.parametrize("name", ["default_profile", "volumes", "preemption"])
async def test_attempts_end_as_in_kube_scheduler(records, clock, name, class_cache, caplog):
    caplog.set_level("CRITICAL")
    outcomes: dict[str, int] = {}
    for record in records(f"scheduler/{name}.jsonl.gz"):
        scheduler = scheduler_of(record["cluster"], clock, class_cache)
        for number, decision in enumerate(record["decisions"]):
            outcome = await check(scheduler, decision, f"{record['name']} decision {number}")
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes


async def test_the_default_profile_is_kube_schedulers(oracle_dir, clock):
    profile = oracle_dir / "scheduler" / "profile.json"
    if not profile.is_file():
        pytest.skip(f"no {profile}")
    recorded = json.loads(profile.read_text())
    framework = scheduler_of({}, clock, class_cache=True).frameworks["default-scheduler"]
    # Of preScore the plugins need not be the same: some here have nothing to prepare.
    for point, plugins in (
        ("preEnqueue", framework.pre_enqueue),
        ("preFilter", framework.pre_filter),
        ("filter", framework.filter),
        ("postFilter", framework.post_filter),
        ("score", framework.score),
    ):
        assert [plugin.name for plugin in plugins] == recorded["plugins"][point], point
    assert framework.weights == recorded["scoreWeights"]
