"""A recorded HorizontalPodAutoscaler scales again in a replay, by the metrics that it saw."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS
from kubeloop.planning.plan_changes import PlanChanges
from kubeloop.process.manifests import Manifest
from kubeloop.recording.reader import RecordingFile
from kubeloop.replay.replay import ReplayResult, measure_recording, replay, replay_options
from kubeloop.replay.user_actions import RecordedDay, read_day
from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
from kubeloop.testing.virtual_time import VirtualClock, run
from support.recordings.recorded_cluster import recording

LOAD = [(0.0, 100), (120.0, 400), (600.0, 150)]  # millicores of all pods, from a time on
SECONDS = 1500.0
CONTAINER = {"name": "main", "image": "app", "resources": {"requests": {"cpu": "100m"}}}
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}},
    },
}


def autoscaler(percent: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 20,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }


async def _load_pods(cluster: MemoryCluster) -> None:
    """Divide the load among the running pods."""
    while True:
        now = asyncio.get_running_loop().time()
        load = [millicores for begin, millicores in LOAD if begin <= now][-1]
        pods = [pod for pod in cluster.api.store.list(PODS, "default") if pod["status"]["phase"] == "Running"]
        for pod in pods:
            annotations = {"kwok.x-k8s.io/usage-cpu": f"{load // len(pods)}m"}
            patch = {"metadata": {"annotations": annotations}}
            await cluster.client.patch(PODS, pod["metadata"]["name"], patch, PatchType.MERGE, "default")
        await asyncio.sleep(5.0)


@pytest.fixture(scope="module", params=[False, True], ids=["created while recording", "exists at the start"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the recording of an autoscaler whose load rises and falls; a user scales the Deployment once."""
    path = tmp_path_factory.mktemp("recording") / "day.kubeloop"

    async def record() -> None:
        clock = VirtualClock()
        async with memory_cluster(clock=clock, nodes=2, start_delay=20.0, start_spread=0.0) as cluster:
            await cluster.apply(DEPLOYMENT)
            if request.param:
                await cluster.apply(autoscaler(50))
                await asyncio.sleep(50.0)
            with recording(cluster.api.store, path, clock):
                if not request.param:
                    await cluster.apply(autoscaler(50))
                async with asyncio.TaskGroup() as tasks:
                    task = tasks.create_task(_load_pods(cluster))
                    await asyncio.sleep(480.0)
                    patch = {"spec": {"replicas": 15}}
                    await cluster.client.patch(DEPLOYMENTS, "web", patch, PatchType.MERGE, "default")
                    await asyncio.sleep(SECONDS - 480.0)
                    task.cancel()

    run(record())
    return path


def _replicas(result: ReplayResult) -> list[int]:
    """Return the number of pods at each full minute, within the milliseconds of a recording."""
    runs = result.measurement.runs.values()
    ended = [SECONDS if it.deleted is None else it.deleted for it in runs]
    minutes = range(60, int(SECONDS), 60)
    return [sum(it.created <= at + 0.001 < end for it, end in zip(runs, ended, strict=True)) for at in minutes]


def test_autoscaler_scales_as_recorded(recorded: Path):
    day = read_day(RecordingFile(recorded))
    before = measure_recording(RecordingFile(recorded), day)
    after = replay(day, "default", replay_options("", seed=0))
    counts = _replicas(before)
    assert (min(counts), max(counts), counts[-1]) == (2, 15, 3)
    assert _replicas(after) == counts
    assert day.findings == after.findings == []


def test_scale_steps_of_the_autoscaler_are_not_those_of_a_user(recorded: Path):
    scaled = [
        it for it in read_day(RecordingFile(recorded)).actions if it.type == "patch" and it.resource is DEPLOYMENTS
    ]
    assert [action.body for action in scaled] == [{"spec": {"replicas": 15}}]


def test_load_is_divided_among_the_pods_of_the_replay(recorded: Path):
    day: RecordedDay = read_day(RecordingFile(recorded))
    day.actions = [it for it in day.actions if it.resource is not DEPLOYMENTS]
    lower = PlanChanges(manifests=[Manifest("hpa.yaml", autoscaler(25))])
    counts = _replicas(replay(day, "default", replay_options("", seed=0), changes=lower))
    assert max(counts) == 16
    assert counts[-1] == 6
