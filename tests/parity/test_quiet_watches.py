"""Watches of Events on a real kube-apiserver, which sends no bookmarks for them, while etcd's history is compacted.

The time limits of the reflector are shortened as the compaction interval is: 2 s for 2 min.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from kubeloop.informers import reflector
from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.process.metrics.metrics_registry import MetricsRegistry
from kubeloop.process.observation.observation import Observation, ObservationSettings
from kubeloop.tracing.observation.clock_skew import ClockSkew
from support.comparison.real_apiserver import needs_binaries, real_apiserver

QUIET_SECONDS = 20
PODS, EVENTS, CONFIG_MAPS = (f"/api/v1/namespaces/default/{plural}" for plural in ("pods", "events", "configmaps"))
POD = {"metadata": {"name": "pending"}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}


@pytest.fixture(scope="module", params=["5s", "1s"], ids=["renewed-in-time", "expired"])
def server(request, tmp_path_factory):
    """A server that compacts after, or before, a quiet watch looks for a newer version."""
    needs_binaries()
    flags = {"etcd-compaction-interval": request.param}
    with real_apiserver(tmp_path_factory.mktemp("server"), flags) as running:
        running.compacts_early = request.param == "1s"
        yield running


def failed_scheduling(pod: dict) -> dict:
    return {
        "metadata": {"generateName": "pending."},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "pending", "uid": pod["metadata"]["uid"]},
        "reason": "FailedScheduling",
        "message": "0/1 nodes are available",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingComponent": "default-scheduler",
        "reportingInstance": "test",
        "action": "Scheduling",
        "type": "Warning",
    }


async def test_pending_pod_of_a_quiet_cluster_is_observed_all_the_time(server, monkeypatch, caplog):
    monkeypatch.setattr(reflector, "SILENCE_TIMEOUT_SECONDS", 2.0)
    monkeypatch.setattr(reflector, "INITIAL_SILENCE_TIMEOUT_SECONDS", 2.0)
    monkeypatch.setattr(reflector, "MAX_VERSION_AGE_NS", 2_000_000_000)
    monkeypatch.setattr(reflector, "RENEWAL_WATCH_SECONDS", 1)
    caplog.set_level("INFO", logger="kubeloop.informers.reflector")
    loop = asyncio.get_running_loop()

    async def request(method: str, path: str, body: dict) -> dict:
        return await loop.run_in_executor(None, server.request, method, path, body)

    clock, rng = SystemClock(), random.Random(1)
    client = ApiClient(await connect(str(server.kubeconfig)), clock=clock, rng=rng)
    observation = Observation(
        client, ObservationSettings(), clock=clock, rng=rng, registry=MetricsRegistry(), skew=ClockSkew()
    )
    task = asyncio.create_task(observation.run())
    try:
        await observation.synced.wait()
        pod = await request("POST", PODS, POD)
        for _ in range(QUIET_SECONDS):
            await request("POST", CONFIG_MAPS, {"metadata": {"generateName": "other-"}})  # a new revision
            await asyncio.sleep(1)
        (record,) = observation.tracing.recent.records()
        assert record.milestones is not None
        assert record.milestones.missed == []
        await request("POST", EVENTS, failed_scheduling(pod))
        await asyncio.sleep(2)
        assert [mark.message for mark in record.milestones.scheduling] == ["0/1 nodes are available"]
        relisted = [entry for entry in caplog.records if entry.message == "listing again"]
        assert bool(relisted) == server.compacts_early
    finally:
        task.cancel()
        await asyncio.wait([task])
        await client.close()
        server.request("DELETE", f"{PODS}/pending?gracePeriodSeconds=0")
