"""Leader election of candidates of one API server, in memory and virtual time."""

from __future__ import annotations

import asyncio
import itertools
import random
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from kubeloop.devcluster.kubelet.nodes.simulated_nodes import SimulatedNodes
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.clock import Clock
from kubeloop.kube.objects.api_types import Lease
from kubeloop.kube.objects.resources import LEASES, PODS
from kubeloop.process.control_plane.control_plane import ControlPlane, Settings
from kubeloop.process.control_plane.leader_election import ElectionSettings, LeaderElection, LeaseLost
from support.apiserver.faulty_transport import FaultyTransport, SentRequest

pytestmark = pytest.mark.virtual_time

LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 15.0, 10.0, 2.0


class Candidate:
    def __init__(self, name: str, api: ApiServer, clock: Clock) -> None:
        self.name = name
        self.acts = False
        self.acted_until = 0.0
        self.transport = FaultyTransport(api.handle, rng=random.Random(name))
        self.client = ApiClient(self.transport, clock=clock, rng=random.Random(name))
        settings = ElectionSettings(
            identity=name,
            lease_duration_seconds=LEASE_SECONDS,
            renew_deadline_seconds=RENEW_SECONDS,
            retry_period_seconds=RETRY_SECONDS,
        )
        self.election = LeaderElection(self.client, settings, clock=clock, rng=random.Random(name))

    async def act(self) -> None:
        self.acts = True
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.acts = False
            self.acted_until = asyncio.get_running_loop().time()

    async def run(self) -> None:
        await self.election.run_while_leading(self.act)


class World:
    def __init__(self, clock: Clock) -> None:
        self.api = ApiServer(clock=clock, rng=random.Random(1), token=None)
        self.a, self.b = (Candidate(name, self.api, clock) for name in "ab")

    async def lease(self) -> Lease:
        return await self.b.client.get(LEASES, "kubeloop", "kube-system")

    async def seconds_until_b_acts(self) -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with asyncio.timeout(100.0):
            while not self.b.acts:
                assert not (self.a.acts and self.b.acts)
                await asyncio.sleep(0.01)
        return loop.time() - started


@pytest.fixture
async def world(clock: Clock) -> World:
    return World(clock)


async def test_first_candidate_leads_while_the_other_waits(world: World):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(world.a.run())]
        await asyncio.sleep(1.0)
        tasks.append(group.create_task(world.b.run()))
        first = (await world.lease()).spec
        await asyncio.sleep(300.0)
        assert (world.a.acts, world.b.acts) == (True, False)
        lease = (await world.lease()).spec
        assert (lease.holder_identity, lease.lease_duration_seconds, lease.lease_transitions) == ("a", 15, 0)
        assert lease.acquire_time == first.acquire_time
        assert lease.renew_time > first.renew_time
        for task in tasks:
            task.cancel()


async def test_leader_releases_the_lease_when_it_ends(world: World):
    async with asyncio.TaskGroup() as group:
        leader = group.create_task(world.a.run())
        await asyncio.sleep(1.0)
        other = group.create_task(world.b.run())
        await asyncio.sleep(10.0)
        leader.cancel()
        await asyncio.wait([leader])
        assert (await world.lease()).spec.holder_identity == ""
        assert await world.seconds_until_b_acts() <= RETRY_SECONDS * 2.2 + 0.1
        lease = (await world.lease()).spec
        assert (lease.holder_identity, lease.lease_transitions) == ("b", 1)
        other.cancel()


async def test_disconnected_leader_stops_at_its_renew_deadline(world: World):
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        losing = group.create_task(_outcome(world.a))
        await asyncio.sleep(1.0)
        other = group.create_task(world.b.run())
        await asyncio.sleep(10.5)
        world.a.transport.before_request = lambda request: asyncio.sleep(3600.0)
        cut_at = loop.time()
        seconds = await world.seconds_until_b_acts()
        assert isinstance(losing.result(), LeaseLost)
        assert "not renewed within 10 s" in str(losing.result())
        assert RENEW_SECONDS - RETRY_SECONDS <= world.a.acted_until - cut_at <= RENEW_SECONDS
        assert LEASE_SECONDS - RETRY_SECONDS <= seconds <= LEASE_SECONDS + RETRY_SECONDS * 2.2 + 0.1
        other.cancel()


async def test_renew_deadline_counts_from_the_request_of_a_slow_renewal(world: World, clock: Clock):
    loop = asyncio.get_running_loop()
    losing = asyncio.create_task(_outcome(world.a))
    await asyncio.sleep(1.0)
    world.a.transport.before_request = lambda request: asyncio.sleep(1.5)  # a renewal has two requests
    await asyncio.sleep(30.0)
    world.a.transport.before_request = lambda request: asyncio.sleep(3600.0)
    assert isinstance(await losing, LeaseLost)
    stopped_at = clock.now() - timedelta(seconds=loop.time() - world.a.acted_until)
    renewed_at = (await world.lease()).spec.renew_time
    assert renewed_at is not None
    assert (stopped_at - renewed_at).total_seconds() == pytest.approx(RENEW_SECONDS)


async def test_leader_stops_when_another_holds_the_lease(world: World):
    async with asyncio.TaskGroup() as group:
        losing = group.create_task(_outcome(world.a))
        await asyncio.sleep(3.0)
        patch = {"spec": {"holderIdentity": "thief"}}
        await world.b.client.patch(LEASES, "kubeloop", patch, PatchType.MERGE, "kube-system")
        await asyncio.sleep(RETRY_SECONDS + 0.1)
        assert not world.a.acts
        assert str(losing.result()) == "the lease is now held by thief"
        assert (await world.lease()).spec.holder_identity == "thief"  # the lease of another holder is not released


async def test_leader_retries_after_a_conflict(world: World):
    async with asyncio.TaskGroup() as group:
        leader = group.create_task(world.a.run())
        for number in range(40):
            await asyncio.sleep(0.7)
            patch = {"metadata": {"labels": {"touched": str(number)}}}
            await world.b.client.patch(LEASES, "kubeloop", patch, PatchType.MERGE, "kube-system")
        assert world.a.acts
        leader.cancel()
        await asyncio.wait([leader])
    assert (await world.lease()).spec.holder_identity == ""


async def test_concurrent_candidates_never_lead_together(world: World):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(candidate.run()) for candidate in (world.a, world.b)]
        for _ in range(100):
            await asyncio.sleep(0.5)
            assert world.a.acts + world.b.acts == 1
        for task in tasks:
            task.cancel()


async def test_crash_of_the_leader_releases_the_lease(world: World):
    async def crash() -> None:
        await asyncio.sleep(5.0)
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as raised:
        await world.a.election.run_while_leading(crash)
    assert raised.group_contains(ZeroDivisionError)
    assert (await world.lease()).spec.holder_identity == ""


async def test_only_the_leader_creates_and_binds_pods(world: World, clock: Clock):
    nodes = SimulatedNodes(world.api.store, NodeSettings(count=2), clock=clock, rng=random.Random(2))
    nodes.register()

    async def replica(candidate: Candidate) -> None:
        plane = ControlPlane(
            candidate.client, Settings(), clock=clock, rng=random.Random(candidate.name), registry=CollectorRegistry()
        )
        await plane.run(candidate.election.run_while_leading)

    def bound() -> int:
        return sum("nodeName" in pod["spec"] for pod in world.api.store.list(PODS))

    def pod(name: str) -> dict[str, object]:
        return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}

    async with asyncio.TaskGroup() as group:
        serving = [group.create_task(world.api.run()), group.create_task(nodes.run())]
        leader = group.create_task(replica(world.a))
        await asyncio.sleep(1.0)
        other = group.create_task(replica(world.b))
        await world.b.client.create(PODS, pod("first"), "default")
        await asyncio.sleep(1.0)
        assert (bound(), (await world.lease()).spec.holder_identity) == (1, "a")
        leader.cancel()
        await asyncio.wait([leader])
        await world.b.client.create(PODS, pod("second"), "default")
        await asyncio.sleep(RETRY_SECONDS * 2.2 + 1.0)
        assert (bound(), (await world.lease()).spec.holder_identity) == (2, "b")
        for task in (other, *serving):
            task.cancel()


async def _outcome(candidate: Candidate) -> BaseException | None:
    try:
        await candidate.run()
    except LeaseLost as lost:
        return lost
    return None


async def test_waiting_candidate_retries_within_the_jitter_of_client_go(world: World):
    """client-go's JitterFactor adds up to 1.2 retry periods to each."""
    requests: list[float] = []

    async def before_request(request: SentRequest) -> None:
        requests.append(asyncio.get_running_loop().time())

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(world.a.run())]
        await asyncio.sleep(1.0)
        world.b.transport.before_request = before_request
        tasks.append(group.create_task(world.b.run()))
        await asyncio.sleep(600.0)
        for task in tasks:
            task.cancel()
    gaps = [later - earlier for earlier, later in itertools.pairwise(requests)]
    assert len(gaps) > 100
    assert RETRY_SECONDS <= min(gaps) < RETRY_SECONDS * 1.1
    assert RETRY_SECONDS * 2.0 < max(gaps) <= RETRY_SECONDS * 2.2 + 0.01
