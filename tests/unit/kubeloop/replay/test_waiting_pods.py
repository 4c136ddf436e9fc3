"""Pods that wait for room get it in a replay as in the recording: the same ones, at the same times."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.client.transport import HttpRequest, HttpResponse
from kubeloop.kube.objects.resources import DEPLOYMENTS, NODES, RESOURCE_QUOTAS
from kubeloop.recording.reader import RecordingFile
from kubeloop.replay.measurement import PodRun
from kubeloop.replay.replay import ReplayResult, measure_recording, replay, replay_options
from kubeloop.replay.user_actions import read_day
from kubeloop.testing.assembly import run_api_server, run_control_plane
from kubeloop.testing.cluster_options import cluster_options
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.virtual_time import VirtualClock, run
from support.recordings.recorded_cluster import recording

REQUEST_SECONDS = 0.004


class SlowTransport(MemoryTransport):
    """A transport whose requests take as long as those to a real API server."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(REQUEST_SECONDS)
        return await super().send(request)


def deployment(name: str, replicas: int, cpu: int = 1) -> dict[str, Any]:
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": str(cpu)}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


async def _day(client: ApiClient) -> None:
    """Pods wait with one to three failed attempts; room comes from uncordoned nodes, deletions, a node and a quota."""

    async def patch(resource: Any, name: str, spec: dict[str, Any]) -> None:
        await client.patch(resource, name, {"spec": spec}, PatchType.MERGE, "" if resource is NODES else "default")

    await client.create_raw(DEPLOYMENTS, deployment("a", 12), "default")
    await client.create_raw(DEPLOYMENTS, deployment("b", 8, cpu=2), "default")
    await asyncio.sleep(7.0)
    await patch(DEPLOYMENTS, "a", {"replicas": 16})
    await asyncio.sleep(7.0)
    for name in ("node-1", "node-2"):
        await patch(NODES, name, {"unschedulable": False})
        await asyncio.sleep(2.0)
    for replicas in (14, 6):
        await patch(DEPLOYMENTS, "a", {"replicas": replicas})
        await asyncio.sleep(20.0)
    size = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    node = {"metadata": {"name": "new"}, "status": {"capacity": size, "allocatable": size}}
    await client.create_raw(NODES, {"apiVersion": "v1", "kind": "Node", **node})
    await asyncio.sleep(20.0)
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "15"}}}
    await client.create_raw(RESOURCE_QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota", **quota}, "default")
    await patch(DEPLOYMENTS, "a", {"replicas": 12})
    await asyncio.sleep(5.0)
    await patch(RESOURCE_QUOTAS, "q", {"hard": {"pods": "30"}})
    await asyncio.sleep(60.0)


async def _record(path: Path) -> None:
    clock, rng, options = VirtualClock(), random.Random(3), cluster_options({"nodes": 3})
    settings = options.settings()
    scheduler = msgspec.structs.replace(settings.scheduler, attempt_seconds=0.001)
    settings = msgspec.structs.replace(settings, scheduler=scheduler)
    async with (
        run_api_server(options, clock=clock, rng=rng) as api,
        run_control_plane(api, settings, clock=clock, rng=rng, transport=SlowTransport(api.handle)),
    ):
        client = ApiClient(MemoryTransport(api.handle), clock=clock, rng=rng)
        for name in ("node-1", "node-2"):
            await client.patch(NODES, name, {"spec": {"unschedulable": True}}, PatchType.MERGE)
        await asyncio.sleep(5.0)
        with recording(api.store, path, clock):
            await _day(client)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReplayResult, ReplayResult]:
    path = tmp_path_factory.mktemp("recording") / "day.kubeloop"
    run(_record(path))
    day = read_day(RecordingFile(path))
    return measure_recording(RecordingFile(path), day), replay(day, "replay", replay_options("", seed=0))


def pods_of(result: ReplayResult, name: str) -> list[PodRun]:
    return [pod for pod in result.measurement.runs.values() if pod.workload == f"deployment default/{name}"]


@pytest.mark.parametrize("name", ["a", "b"])
def test_each_waiting_pod_is_bound_as_recorded(results: tuple[ReplayResult, ReplayResult], name: str):
    recorded, replayed = (pods_of(result, name) for result in results)
    assert [pod.node for pod in replayed] == [pod.node for pod in recorded]
    for field in ("created", "bound"):
        times = [[getattr(pod, field) or -1.0 for pod in pods] for pods in (replayed, recorded)]
        assert times[0] == pytest.approx(times[1], abs=0.05), field


def test_recording_has_a_pod_that_is_overtaken(results: tuple[ReplayResult, ReplayResult]):
    """It is tried between the uncordon of an empty node and the removal of the taint, and waits for the next node."""
    pods = [*pods_of(results[0], "a"), *pods_of(results[0], "b")]
    waiting = sorted((pod.created, pod.bound) for pod in pods if pod.bound is not None and pod.bound > 1.0)
    assert waiting[0][1] > min(bound for _, bound in waiting)
