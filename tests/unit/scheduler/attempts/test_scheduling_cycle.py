"""The scheduling cycle: which pods it attempts, what it reserves, and how failed attempts end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.kube.objects.api_types import Node, NodeAllocatableResourceClaimStatus, Pod
from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.attempts.scheduling_cycle import SchedulingCycle
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.points.reserve_points import ReservePoints
from kubeloop.scheduler.framework.timing import Timing
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from kubeloop.scheduler.metrics import NO_METRICS
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod
from support.scheduling.scheduling_attempts import SchedulingAttempts

pytestmark = pytest.mark.virtual_time


class NanosecondClock:
    """A clock that advances within a turn of the event loop."""

    def __init__(self) -> None:
        self.ns = 1

    def now(self) -> datetime:
        return datetime(2026, 3, 1, tzinfo=UTC)

    def time_ns(self) -> int:
        return self.ns


class Permit:
    """A Permit plugin that returns `result`."""

    name = "Mine"

    def __init__(self, result: Status | None) -> None:
        self.result = result

    def permit(self, state: Any, pod: Any, node_name: str) -> tuple[Status | None, float]:
        return self.result, 5.0


class Cycle(SchedulingAttempts):
    """A scheduling cycle on `nodes`. permit: the result of its Permit plugin."""

    def __init__(self, clock: Any, *nodes: Node, permit: Status | None = None) -> None:
        super().__init__(PluginCluster(nodes), clock)
        self.framework = framework = self.cluster.make_framework()
        self.waiting_pods = WaitingPods()
        points: Any = {"reserve": (), "permit": [Permit(permit)]}
        framework.reserve = ReservePoints(Timing(NO_METRICS, "profile", int), points, self.waiting_pods)
        self.cycle = SchedulingCycle(
            self.context,
            {"default-scheduler": framework},
            self.queue,
            self.cluster.cache,
            self.algorithm.snapshot,
            self.steps,
            self.failed,
        )

    async def run(self, pod: Pod) -> Attempt | None:
        """Run the cycle of a new pod."""
        self.add(pod)
        return await self.cycle.run()


@pytest.mark.parametrize(
    ("permit", "in_flight"),
    [pytest.param(None, False, id="allowed"), pytest.param(Status(Code.WAIT), True, id="waits on permit")],
)
async def test_pod_is_assumed_and_in_flight_until_permitted(clock: Any, permit: Status | None, in_flight: bool) -> None:
    cycle = Cycle(clock, make_node("n"), permit=permit)
    attempt = await cycle.run(make_pod("p"))
    assert attempt is not None
    assert (attempt.node, attempt.pod_info.pod.spec.node_name, attempt.facts.result) == ("n", "n", "scheduled")
    assert [pod.key for pod in cycle.cluster.cache.assumed_pods()] == ["default/p"]
    assert ("p" in cycle.queue.in_flight) is in_flight
    assert (cycle.waiting_pods.get("p") is not None) is in_flight


async def test_pod_rejected_on_permit_is_forgotten_and_requeued(clock: Any) -> None:
    cycle, pod = Cycle(clock, make_node("n"), permit=unschedulable("Mine", "not now")), make_pod("p")
    assert await cycle.run(pod) is None
    assert cycle.cluster.cache.assumed_pods() == []
    assert cycle.queue_of("p") == "unschedulable"
    assert cycle.messages == ["0/1 nodes are available: 1 not now."]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        pytest.param([], "no nodes available to schedule pods", id="no node"),
        pytest.param(["n"], "0/1 nodes are available: 1 Insufficient cpu.", id="no room"),
    ],
)
async def test_pod_without_a_feasible_node_is_unschedulable(clock: Any, nodes: list[str], message: str) -> None:
    cycle, pod = Cycle(clock, *map(make_node, nodes)), make_pod("p", cpu="5")
    assert await cycle.run(pod) is None
    assert [text.startswith(message) for text in cycle.messages] == [True]
    assert "p" not in cycle.queue.in_flight


async def test_exception_costs_the_attempt_only(clock: Any, caplog: Any) -> None:
    cycle, pod = Cycle(clock, make_node("n")), make_pod("p")

    async def broken(attempt: Attempt, rows: Any) -> str:
        raise ValueError("broken")

    cycle.algorithm.schedule = broken  # type: ignore[method-assign]
    assert await cycle.run(pod) is None
    assert cycle.messages == ["ValueError: broken"]
    assert cycle.queue_of("p") == "backoff"


async def test_pod_being_deleted_is_skipped_with_an_event(clock: Any) -> None:
    cycle, pod = Cycle(clock, make_node("n")), make_pod("p")
    pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=clock.now()))
    assert await cycle.run(pod) is None
    assert cycle.messages == ["skip schedule deleting pod: default/p"]
    assert "p" not in cycle.queue.in_flight


async def test_assumed_pod_is_skipped(clock: Any) -> None:
    cycle = Cycle(clock, make_node("n"))
    cycle.cluster.cache.assume_pod(PodInfo(make_pod("p", "n")))
    assert await cycle.run(make_pod("p")) is None
    assert cycle.messages == []
    assert "p" not in cycle.queue.in_flight


async def test_cycle_without_a_pod_ends(clock: Any) -> None:
    assert await Cycle(clock, make_node("n")).cycle.run() is None


@pytest.mark.parametrize(("seconds", "logged"), [(0.099, 0), (0.1, 1)])
async def test_slow_scheduling_cycle_is_logged_with_its_steps(caplog: Any, seconds: float, logged: int) -> None:
    clock = NanosecondClock()
    cycle = Cycle(clock, make_node("n0"), make_node("n1"))
    run_scores = cycle.framework.scores.run_scores

    def slow(*args: Any) -> Any:
        clock.ns += round(seconds * 1e9)
        return run_scores(*args)

    cycle.framework.scores.run_scores = slow  # type: ignore[method-assign]
    assert await cycle.run(make_pod("p")) is not None
    slow_cycles = [record for record in caplog.records if record.getMessage().startswith("slow scheduling cycle")]
    assert [record.getMessage() for record in slow_cycles] == [
        "slow scheduling cycle of default/p: 100 ms (Snapshotting scheduler cache and node infos done: 0 ms,"
        " Computing predicates done: 0 ms, Prioritizing done: 100 ms)"
    ] * logged


async def test_resources_that_claims_take_count_from_the_moment_of_assumption(clock: Any) -> None:
    cycle = Cycle(clock, make_node("n"))
    taken = NodeAllocatableResourceClaimStatus(resource_claim_name="new", resources={"cpu": "1"})
    schedule = cycle.algorithm.schedule

    async def schedule_with_claims(attempt: Attempt, rows: Any) -> str:
        attempt.state.node_allocatable_claims = {"n": (taken,)}
        return await schedule(attempt, rows)

    cycle.algorithm.schedule = schedule_with_claims  # type: ignore[method-assign]
    former = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "former"}]}
    attempt = await cycle.run(make_pod("p", status=former))
    assert attempt is not None
    assert attempt.pod_info.pod.status.node_allocatable_resource_claim_statuses == (taken,)
