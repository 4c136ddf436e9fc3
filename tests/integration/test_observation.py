"""Observation of a complete cluster in memory and virtual time: rollouts, preemption, and broken watches."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.resources import DEPLOYMENTS
from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
from kubeloop.testing.virtual_time import VirtualClock
from kubeloop.tracing.spans.pod_record import PodRecord
from support.apiserver.faulty_transport import FaultyTransport, WatchFault, injected_error
from support.objects.manifests import deployment
from support.traces.observation import new_observation

pytestmark = pytest.mark.virtual_time
EVENTS_ARRIVE_SECONDS = 30.0


class Observed:
    """An observation, and the transport of its requests."""

    def __init__(self, cluster: MemoryCluster, clock: VirtualClock) -> None:
        self.transport = FaultyTransport(cluster.api.handle, rng=random.Random(1))
        self._observation = new_observation(self.transport, clock)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Observed]:
        task = asyncio.create_task(self._observation.run())
        await self._observation.synced.wait()
        yield self
        task.cancel()
        await asyncio.wait([task])

    async def records(self) -> list[PodRecord]:
        """Return the records of pods whose trace has ended, with all their Events."""
        await asyncio.sleep(EVENTS_ARRIVE_SECONDS)
        return [record for record in self._observation.tracing.recent.records() if record.outcome]

    def lists(self) -> int:
        """Return the number of lists of pods."""
        return sum("sendInitialEvents" in r.target and "/pods?" in r.target for r in self.transport.sent)


@contextlib.asynccontextmanager
async def observed_cluster(clock: VirtualClock, **options: Any) -> AsyncIterator[tuple[MemoryCluster, Observed]]:
    async with memory_cluster(clock=clock, **options) as cluster, Observed(cluster, clock).running() as observed:
        yield cluster, observed


def phase_names(record: PodRecord) -> list[str]:
    return [fact.name for fact in record.facts]


async def test_rollout_has_one_trace_per_pod_with_its_deployment(clock: VirtualClock):
    async with observed_cluster(clock, start_delay=2, start_spread=1) as (cluster, observed):
        await cluster.apply(deployment(replicas=4, image="app:1"))
        await cluster.wait_for("deployment/web", "complete")
        first = {pod.metadata.uid for pod in cluster.seen_pods()}
        await cluster.client.patch(
            DEPLOYMENTS, "web", deployment(replicas=4, image="app:2"), PatchType.MERGE, "default"
        )
        await cluster.until(lambda: not first & {pod.metadata.uid for pod in cluster.seen_pods()})
        await cluster.wait_for("deployment/web", "complete")
        second = {pod.metadata.uid for pod in cluster.seen_pods()}
        records = await observed.records()
    assert Counter(record.uid for record in records) == Counter(first | second)
    assert {record.outcome for record in records} == {"ready"}
    assert {(record.top_owner_kind, record.top_owner_name) for record in records} == {("Deployment", "web")}
    assert all({"start sandbox", "image pull"} & set(phase_names(record)) for record in records)


async def test_pod_preempted_before_it_is_ready_has_the_reason(clock: VirtualClock):
    priorities = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("low", 1), ("high", 1000))
    ]
    low = deployment("low", replicas=1, cpu="3", priorityClassName="low")
    high = deployment("high", replicas=1, cpu="3", priorityClassName="high")
    async with observed_cluster(clock, nodes=1, node_cpu="4", start_delay=20) as (cluster, observed):
        await cluster.apply(*priorities, low)
        await cluster.until(lambda: any(pod.spec.node_name for pod in cluster.seen_pods()))
        await cluster.apply(high)
        await cluster.wait_for("deployment/high", "complete", timeout=120)
        records = {record.top_owner_name: record for record in await observed.records()}
    assert records["low"].outcome == "failed"
    assert records["low"].reason.startswith("preempted: ")
    assert records["high"].outcome == "ready"


@pytest.mark.parametrize("fault", ["expired", "reset"])
async def test_broken_watch_loses_and_repeats_no_trace(clock: VirtualClock, fault: str):
    """ "expired" leads to another list; after "reset" the watch continues where it ended."""
    async with memory_cluster(clock=clock, start_delay=5, start_spread=4) as cluster:
        observed = Observed(cluster, clock)
        observed.transport.watch_faults.append(WatchFault(fault, lines=20, resource="pods"))
        async with observed.running():
            await cluster.apply(deployment(replicas=12))
            await cluster.wait_for("deployment/web", "complete")
            uids = {pod.metadata.uid for pod in cluster.seen_pods()}
            records = await observed.records()
    assert observed.lists() == (2 if fault == "expired" else 1)
    assert Counter(record.uid for record in records) == Counter(uids)
    assert {record.outcome for record in records} == {"ready"}
    assert any("not observed" in phase_names(record) for record in records) == (fault == "expired")


async def test_starts_that_arrive_late_are_not_in_the_sli(clock: VirtualClock):
    """The watch of pods is resumed after twenty seconds, in which the pods of one Deployment were started."""
    async with observed_cluster(clock, start_delay=2) as (cluster, observed):
        await cluster.apply(deployment("prompt", replicas=2))
        await cluster.wait_for("deployment/prompt", "complete")
        observed.transport.down = True
        await cluster.apply(deployment("late", replicas=2))
        await cluster.wait_for("deployment/late", "complete")
        await asyncio.sleep(20)
        observed.transport.down = False
        await asyncio.sleep(60)
        records = await observed.records()
    assert observed.lists() == 1
    assert Counter((record.top_owner_name, record.start_sli_ns > 0) for record in records) == {
        ("prompt", True): 2,
        ("late", False): 2,
    }
    assert not any("not observed" in phase_names(record) for record in records)


async def test_pods_started_while_credentials_are_rejected_have_one_trace(clock: VirtualClock):
    async with observed_cluster(clock) as (cluster, observed):
        await cluster.apply(deployment("before", replicas=2))
        await cluster.wait_for("deployment/before", "complete")
        observed.transport.reject = lambda method, path: injected_error(401)
        observed.transport.break_watches()
        await cluster.apply(deployment("during", replicas=2))
        await cluster.wait_for("deployment/during", "complete")
        await asyncio.sleep(300)
        observed.transport.reject = lambda method, path: None
        await asyncio.sleep(120)
        uids = {pod.metadata.uid for pod in cluster.seen_pods()}
        records = await observed.records()
    assert Counter(record.uid for record in records) == Counter(uids)
    assert {record.outcome for record in records} == {"ready"}


async def test_pod_deleted_while_the_watch_is_broken_has_a_trace(clock: VirtualClock):
    async with observed_cluster(clock, start_delay=60) as (cluster, observed):
        await cluster.apply(deployment(replicas=1))
        await cluster.until(lambda: any(pod.spec.node_name for pod in cluster.seen_pods()))
        (pod,) = cluster.seen_pods()
        await asyncio.sleep(1)
        observed.transport.down = True
        await cluster.delete("deployment/web")
        await cluster.until(lambda: not cluster.seen_pods(), timeout=120)
        observed.transport.compacted_version = cluster.api.store.revision
        observed.transport.down = False
        (record,) = await observed.records()
    assert (record.uid, record.outcome) == (pod.metadata.uid, "deleted")
    assert "not observed" in phase_names(record)
