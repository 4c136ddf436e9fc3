"""A whole control plane under rollouts, failing nodes and dropped watches: no pod and no trace is lost.

Runs for 5 seconds, and until all is deleted; `make soak` runs for an hour (KUBELOOP_SOAK_SECONDS, with
KUBELOOP_SOAK_USERS users) and also checks that memory and CPU per pod do not grow.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from support.processes.cli_processes import TIMEOUT_SECONDS
from support.processes.control_plane_soak import (
    FILLING_PODS,
    NODES,
    ApiClient,
    Meter,
    PodLog,
    Sample,
    TraceLog,
    User,
    fail_nodes,
    growth,
    quarters,
    table,
    wait_until_ready,
)
from support.traces.otlp import Collector

SECONDS = float(os.environ.get("KUBELOOP_SOAK_SECONDS", "5"))
LONG_SECONDS = 600.0
FLAT_SECONDS = 3600.0  # in shorter runs, caches may not be full
USERS = int(os.environ.get("KUBELOOP_SOAK_USERS", "6" if SECONDS >= LONG_SECONDS else "2"))
TOKEN = "for-a-test"
GRACE = "--node-monitor-grace-period=10"
# seconds of history: watches that are dropped resume, those that are late list again
APISERVER = (f"--nodes={NODES}", "--compaction-interval=2", "--faults=drop-watch=0.005,seed=5", "--stop-delay=200ms")
RUN = ("--controllers=*", "--node-monitor-period=1", "--node-eviction-rate=10", "--secondary-node-eviction-rate=10")


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
async def test_control_plane_loses_no_pod_and_no_trace(kubeloop, tmp_path):
    counts: Counter[str] = Counter()
    pods = PodLog()
    kubeconfig = tmp_path / "kubeconfig"
    with Collector().running() as collector:
        traces = TraceLog(collector)
        server_command = ("apiserver", f"--kubeconfig={kubeconfig}", *APISERVER, GRACE)
        with kubeloop.running(*server_command, KUBELOOP_TOKEN=TOKEN) as server:
            address = (await asyncio.to_thread(server.wait_for, r"https://(127\.0\.0\.1:\d+)"))[1]
            run_command = ("run", f"--kubeconfig={kubeconfig}", *RUN, GRACE)
            with kubeloop.running(*run_command, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as control_plane:
                endpoint = (await asyncio.to_thread(control_plane.wait_for, r"endpoint (http://\S+)"))[1]
                meter = Meter(
                    {"API server": server.process.pid, "control plane": control_plane.process.pid}, pods, traces
                )
                async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
                    api = ApiClient(http, f"http://{address}", TOKEN)
                    await wait_until_ready(http, endpoint)
                    watches = await api.started_watches()
                    background = [
                        group.create_task(pods.watch(api)),
                        group.create_task(fail_nodes(api, random.Random(4), counts)),
                        group.create_task(meter.run(SECONDS / 40)),
                    ]
                    async with asyncio.TaskGroup() as using:
                        users = [User(index, api, random.Random(index), counts) for index in range(USERS)]
                        for user in users:
                            using.create_task(user.run())
                        await asyncio.sleep(SECONDS)
                        while not counts["node failures"] or await api.started_watches() == watches:
                            await asyncio.sleep(0.5)
                        for user in users:
                            user.ended = True
                    counts["restarted watches"] = await api.started_watches() - watches
                    async with asyncio.timeout(TIMEOUT_SECONDS):
                        while pods.existing:
                            await asyncio.sleep(0.05)
                    for task in background:
                        task.cancel()
                assert control_plane.stop() == 0, control_plane.lines
        traces.take()
    missing = (pods.existing.keys() | pods.deleted) - traces.by_pod.keys()
    repeated = {uid: ids for uid, ids in traces.by_pod.items() if len(ids) > 1}
    counts |= {"pods": pods.created, "bound pods": len(pods.bound), "traces": len(traces.by_pod)}
    print(dict(counts))
    if SECONDS >= LONG_SECONDS:
        print(table(quarters(meter.samples)))
    assert not missing, f"{len(missing)} of {pods.created} pods have no trace: {sorted(missing)[:5]}"
    assert not repeated
    for process in (server, control_plane):
        log = "".join(process.lines)
        assert "Traceback" not in log, log[max(0, log.index("Traceback") - 500) :][:5000]
    assert all(counts[name] for name in ("rounds", "node failures", "restarted watches", "bound pods")), counts
    if SECONDS >= FLAT_SECONDS or pods.created >= 2 * FILLING_PODS:
        assert not growth(meter.samples)


def test_growth_names_memory_and_cpu_of_the_last_quarter():
    filling = [Sample(10, [1.0, 3.0], {"a": 0.1, "b": 0.1}, {"a": 50 << 20, "b": 50 << 20}, 1.0)] * 3
    samples = filling + [Sample(10, [1.0, 3.0], {"a": 0.5, "b": 0.5}, {"a": 100 << 20, "b": 100 << 20}, 1.0)] * 3
    grown = [Sample(10, [1.0, 3.0], {"a": 0.6, "b": 0.7}, {"a": 120 << 20, "b": 109 << 20}, 1.0)] * 2
    assert growth(samples + samples[-2:], filling_pods=40) == []
    assert growth(samples + grown, filling_pods=40) == [
        "memory in MiB of the a: 100.0, then 120.0",
        "CPU in ms per pod of the b: 50.0, then 70.0",
    ]
    assert growth(samples + grown, filling_pods=51) == ["80 pods are too few to compare two quarters after 51"]
    assert table(quarters(samples + grown)).splitlines()[-1] == "| 4 | 20 | 2, 3 | 60.0; 120 | 70.0; 109 | 1.0 |"
