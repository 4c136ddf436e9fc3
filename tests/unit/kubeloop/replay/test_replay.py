"""A cluster in memory is recorded and replayed: same pods, times and nodes; report, page and traces."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.resources import NODES
from kubeloop.kube.user_error import UserError
from kubeloop.planning.plan_changes import PlanChanges, parse_scale
from kubeloop.process.manifests import Manifest
from kubeloop.recording.reader import RecordingFile
from kubeloop.replay.measurement import PodRun
from kubeloop.replay.page import report_page
from kubeloop.replay.replay import ReplayResult, measure_recording, replay, replay_options
from kubeloop.replay.report import Report, build_report
from kubeloop.replay.text import report_lines
from kubeloop.replay.user_actions import read_day, read_file
from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
from kubeloop.testing.virtual_time import VirtualClock, run
from support.recordings.recorded_cluster import recording

PACKING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {score: {disabled: [{name: PodTopologySpread}, {name: NodeResourcesBalancedAllocation}]}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""


def deployment(name: str, replicas: int, *, cpu: str = "1", image: str = "app:1", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "job"},
    "spec": {
        "completions": 4,
        "parallelism": 2,
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]},
        },
    },
}
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}


async def _day(cluster: MemoryCluster) -> None:
    await cluster.apply(deployment("web", 4))
    await asyncio.sleep(60.0)
    await cluster.apply(deployment("web", 4, image="app:2"))
    await cluster.apply(JOB)
    await asyncio.sleep(60.0)
    await cluster.apply(deployment("low", 24))  # 4 stay pending
    await asyncio.sleep(60.0)
    await cluster.apply(HIGH)
    await cluster.apply(deployment("important", 2, priorityClassName="high"))
    await asyncio.sleep(60.0)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the recording of a rollout, a Job, pending pods and a preemption on three nodes of 8 CPUs."""
    path = tmp_path_factory.mktemp("recording") / "day.kubeloop"

    async def record() -> None:
        clock = VirtualClock()
        async with memory_cluster(clock=clock, nodes=3, start_delay=3.0, start_spread=2.0, job_duration=9.0) as cluster:
            await cluster.apply(deployment("before", 1))
            await asyncio.sleep(30.0)
            with recording(cluster.api.store, path, clock):
                await _day(cluster)

    run(record())
    return path


@pytest.fixture(scope="module")
def results(recorded: Path) -> list[ReplayResult]:
    day = read_day(RecordingFile(recorded))
    return [
        measure_recording(RecordingFile(recorded), day),
        replay(day, "default", replay_options("", seed=0)),
        replay(day, "packing", replay_options(PACKING, seed=0)),
    ]


@pytest.fixture(scope="module")
def report(recorded: Path, results: list[ReplayResult]) -> Report:
    return build_report(read_day(RecordingFile(recorded)), results, seed=0)


def _pods(result: ReplayResult, workload: str) -> list[PodRun]:
    return [pod for pod in result.measurement.runs.values() if pod.workload == workload]


@pytest.mark.parametrize(
    "workload",
    ["deployment default/before", "deployment default/web", "deployment default/low", "job default/job"],
)
def test_replay_has_the_pods_and_times_of_the_recording(results: list[ReplayResult], workload: str):
    before, after = _pods(results[0], workload), _pods(results[1], workload)
    assert len(after) == len(before)
    for name in ("created", "bound", "ready"):
        times = [sorted(getattr(pod, name) or 0.0 for pod in pods) for pods in (before, after)]
        assert times[1] == pytest.approx(times[0], abs=0.1), name
    assert Counter(pod.node != "" for pod in after) == Counter(pod.node != "" for pod in before)


def test_pods_of_the_start_stay_on_their_nodes(results: list[ReplayResult]):
    (before,), (after,) = (_pods(result, "deployment default/before") for result in results[:2])
    assert (after.is_initial, after.node, after.key) == (True, before.node, before.key)


def test_replay_preempts_as_the_recording(report: Report):
    first, second, _ = report.runs
    assert (second.preempted, second.pending) == (first.preempted, first.pending) == (2, 7)
    assert second.unschedulable_seconds.keys() == {"Insufficient cpu"}


def test_other_configuration_moves_pods(report: Report):
    second = report.comparisons[1]
    assert (second.first, second.second) == ("default", "packing")
    assert second.moved > 0
    assert sum(it.moved for it in second.workloads) == second.moved


def test_same_seed_gives_the_same_bytes(recorded: Path, report: Report):
    day = read_day(RecordingFile(recorded))
    again = [
        measure_recording(RecordingFile(recorded), day),
        replay(day, "default", replay_options("", seed=0)),
        replay(day, "packing", replay_options(PACKING, seed=0)),
    ]
    assert build_report(day, again, seed=0).to_json() == report.to_json()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["replay", "--html", "{page}", "--drain", "node-0", "--json", "{day}"], id="replay"),
        pytest.param(
            ["plan", "--scale", "deploy/web=30", "--drain", "node-0", "--json", "--cluster", "{day}"], id="plan"
        ),
    ],
)
def test_output_does_not_depend_on_the_hash_seed(recorded: Path, tmp_path: Path, arguments: list[str]):
    page = tmp_path / "page.html"
    page.touch()
    outputs = []
    for seed in ("1", "2"):
        command = [argument.format(day=recorded, page=page) for argument in arguments]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-m", "kubeloop", *command], env=environment, capture_output=True, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        outputs.append((done.stdout, page.read_bytes()))
    assert b"node-1" in outputs[0][0] or b"default/web" in outputs[0][0]
    assert outputs[0] == outputs[1]


def test_page_loads_nothing_and_has_a_chart_per_figure(report: Report):
    page = report_page(report)
    assert "default-src 'none'; style-src 'sha256-" in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<svg") == 3 + 4  # of all pods, and of the only pool


def test_text_has_a_column_per_run_and_names_differences(report: Report):
    text = "\n".join(report_lines(report))
    assert "recorded" in text
    assert "pods bound" in text
    assert "unschedulable: Insufficient cpu" in text
    assert "default and packing:" in text


async def _fail(cluster: MemoryCluster, node: str, mode: str | None) -> None:
    patch = {"metadata": {"annotations": {"kubeloop.dev/fail": mode}}}
    await cluster.client.patch(NODES, node, patch, PatchType.MERGE)


@pytest.mark.parametrize("is_lost_before", [False, True], ids=["lost while recorded", "lost before"])
def test_lost_node_has_the_times_of_the_recording(tmp_path: Path, is_lost_before: bool):
    path = tmp_path / "day.kubeloop"
    toleration = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "tolerationSeconds": 5}

    async def record() -> None:
        clock = VirtualClock()
        async with memory_cluster(clock=clock, nodes=3) as cluster:
            if is_lost_before:
                await _fail(cluster, "node-0", "unreachable")
                await asyncio.sleep(90.0)
            with recording(cluster.api.store, path, clock):
                await cluster.apply(deployment("web", 6, tolerations=[toleration]))
                await asyncio.sleep(10.0)
                await _fail(cluster, "node-0", "unreachable")
                await asyncio.sleep(90.0)
                await _fail(cluster, "node-0", None)
                await asyncio.sleep(10.0)  # until its taints are removed
                await cluster.apply(deployment("web", 9, tolerations=[toleration]))
                await asyncio.sleep(30.0)

    run(record())
    day = read_file(RecordingFile(path))
    before, after = measure_recording(RecordingFile(path), day), replay(day, "default", replay_options("", seed=0))
    pods = [_pods(result, "deployment default/web") for result in (before, after)]
    assert len(pods[1]) == len(pods[0])
    for name in ("created", "bound", "deleted"):
        times = [sorted(getattr(pod, name) or 0.0 for pod in runs) for runs in pods]
        assert times[1] == pytest.approx(times[0], abs=1.1), name  # the check of nodes runs each second
    assert Counter(pod.disruption for pod in pods[1]) == Counter(pod.disruption for pod in pods[0])
    assert any(pod.disruption for pod in pods[0]) is not is_lost_before
    assert not any(pod.node == "node-0" and pod.bound < 90.0 for pod in pods[1] if is_lost_before)


def test_pod_that_a_user_deleted_is_deleted_and_replaced(tmp_path: Path):
    path = tmp_path / "day.kubeloop"

    async def record() -> None:
        clock = VirtualClock()
        async with memory_cluster(clock=clock, nodes=3) as cluster:
            with recording(cluster.api.store, path, clock):
                await cluster.apply(deployment("web", 2))
                await asyncio.sleep(10.0)
                await cluster.delete(f"pod/{(await cluster.pods())[0].metadata.name}")
                await asyncio.sleep(10.0)

    run(record())
    result = replay(read_file(RecordingFile(path)), "default", replay_options("", seed=0))
    pods = _pods(result, "deployment default/web")
    assert [pod.deleted is not None for pod in pods].count(True) == 1
    assert max(pod.created for pod in pods) == pytest.approx(10.0, abs=0.5)


def test_storage_classes_are_those_of_the_recording(tmp_path: Path):
    path = tmp_path / "day.kubeloop"
    head = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "standard"}}
    recorded = {**head, "provisioner": "disks.example.com", "volumeBindingMode": "Immediate"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}

    async def record(*, has_class: bool) -> None:
        clock = VirtualClock()
        async with memory_cluster(clock=clock, nodes=1) as cluster:
            await cluster.delete("storageclass/standard")
            if has_class:
                await cluster.apply(recorded)
            path.unlink(missing_ok=True)
            with recording(cluster.api.store, path, clock):
                await cluster.apply(deployment("db", 1, volumes=[volume]))
                await asyncio.sleep(10.0)

    for has_class in (True, False):
        run(record(has_class=has_class))
        day = read_file(RecordingFile(path))
        (pod,) = _pods(replay(day, "default", replay_options("", seed=0)), "deployment default/db")
        assert pod.bound is None  # not the default class of development clusters


def test_refused_request_is_a_finding(recorded: Path):
    day = read_day(RecordingFile(recorded))
    job = next(action for action in day.actions if action.resource.kind == "Job")
    invalid = job._replace(body={**job.body, "spec": {"template": {"spec": {"containers": []}}}})
    day.actions = [invalid if action is job else action for action in day.actions]
    result = replay(day, "default", replay_options("", seed=0))
    (finding,) = result.findings
    assert "1 requests of users were refused (Invalid)" in str(finding)
    assert "create jobs.batch default/job" in str(finding)
    assert _pods(result, "job default/job") == []


def test_plugin_that_cannot_be_loaded_is_an_error_of_the_user(recorded: Path, tmp_path: Path):
    plugins = {"multiPoint": {"enabled": [{"name": "no_such_module:Plugin"}]}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": plugins}],
    }
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(configuration))
    day = read_day(RecordingFile(recorded))
    with pytest.raises(UserError, match="cannot load the scheduler plugin 'no_such_module:Plugin'"):
        replay(day, "mine", replay_options(str(file), seed=0))


def test_requested_shares_are_those_of_the_last_sample(report: Report):
    for figures in report.runs:
        uses = figures.samples[-1].pools.values()
        for resource, share in figures.requested_at_end.items():
            allocatable = sum(use.allocatable[resource] for use in uses)
            assert share == pytest.approx(sum(use.requested[resource] for use in uses) / allocatable, abs=1e-6)
        assert figures.requested_at_end.keys() == {"cpu", "memory"}
    assert report.resources == ["cpu", "memory"]


def test_changes_of_a_plan_are_made_at_the_start(recorded: Path):
    day = read_day(RecordingFile(recorded))
    changes = PlanChanges(
        manifests=[Manifest("new.yaml", deployment("new", 2))],
        drain=["node-0"],
        add_nodes=1,
        like="node-1",
        scale=[parse_scale("deploy/before=3")],
    )
    result = replay(day, "changed", replay_options("", seed=0), changes=changes)
    assert [(pod.created < 1.0, pod.node != "") for pod in _pods(result, "deployment default/new")] == [
        (True, True)
    ] * 2
    assert sum(pod.deleted is None for pod in _pods(result, "deployment default/before")) == 3
    nodes = {pod.node for pod in result.measurement.runs.values() if pod.deleted is None and pod.node}
    assert nodes == {"node-1", "node-2", "node-1-new-1"}


def test_fit_adds_the_fewest_nodes_with_which_nothing_is_pending(recorded: Path, results: list[ReplayResult]):
    day = read_day(RecordingFile(recorded))
    result = replay(day, "default", replay_options("", seed=0), changes=PlanChanges(fit="node-1", drain=["node-0"]))
    assert result.fit is not None
    assert (result.fit.like, result.fit.nodes) == ("node-1", 2)  # 14 pods of 1 CPU, for nodes of 8 CPUs
    assert [run.nodes for run in result.fit.runs] == [0, 2, 1]
    assert {pod.node for pod in result.measurement.runs.values()} >= {"node-1-new-1", "node-1-new-2"}
    report = build_report(day, [results[0], result], seed=0)
    assert report.runs[1].pending == 0
    without, _, fewer = (run.pending for run in result.fit.runs)
    line = f"{without} pending with 0; 0 pending with 2; {fewer} pending with 1"
    line = f"default: 2 more nodes like node-1 are enough ({line})"
    assert line in list(report_lines(report))
    assert line in report_page(report)


def test_replay_ends_with_an_error_when_no_memory_is_left(recorded: Path, monkeypatch: pytest.MonkeyPatch):
    day = read_day(RecordingFile(recorded))
    monkeypatch.setattr("kubeloop.recording.memory.available_memory", lambda: 1 << 20)
    with pytest.raises(UserError, match=r"day\.kubeloop: no memory is left after \d+ s of virtual time, with 2\d pods"):
        replay(day, "default", replay_options("", seed=0))


def test_pods_of_a_node_deleted_at_the_start_move(recorded: Path):
    day = read_day(RecordingFile(recorded))
    (before,) = (obj for resource, obj in day.initial if resource.kind == "Pod")
    node = before["spec"]["nodeName"]
    result = replay(
        day, "changed", replay_options("", seed=0), changes=PlanChanges(delete_nodes=[node], cordon=["node-0"])
    )
    lost, replacement = _pods(result, "deployment default/before")
    assert (lost.node, lost.deleted is not None, replacement.node not in (node, "node-0")) == (node, True, True)
    assert {sample.pools["8 cpu, 32Gi"].nodes for sample in result.measurement.samples[1:] if sample.pools} == {2}


def test_drain_that_never_ends_is_a_finding(recorded: Path):
    day = read_day(RecordingFile(recorded))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "before"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "before"}}},
    }
    (pod,) = (obj for resource, obj in day.initial if resource.kind == "Pod")
    changes = PlanChanges(manifests=[Manifest("pdb.yaml", budget)], drain=[pod["spec"]["nodeName"]])
    (finding,) = replay(day, "changed", replay_options("", seed=0), changes=changes).findings
    assert finding.effect == "the drain never ends"
    assert "disruption budget" in finding.problem


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"drain": ["none"]}, "--drain none: there is no node", id="node"),
        pytest.param({"fit": "none"}, "--fit none: there is no node", id="fit"),
        pytest.param({"scale": [parse_scale("deploy/none=1")]}, "none does not exist", id="workload"),
        pytest.param(
            {"manifests": [Manifest("bad.yaml, document 1", deployment("Bad_name", 1))]},
            "bad.yaml, document 1",
            id="manifest",
        ),
    ],
)
def test_impossible_changes_are_errors(recorded: Path, changes: dict[str, Any], problem: str):
    with pytest.raises(UserError, match=problem):
        replay(read_day(RecordingFile(recorded)), "x", replay_options("", seed=0), changes=PlanChanges(**changes))
