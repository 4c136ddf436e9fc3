"""The steps of an attempt that pods and members of pod groups share."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.scheduler.api.extension_points import PostFilterResult
from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.attempts.attempt_steps import _log_slow_cycle, with_node
from kubeloop.scheduler.framework.fit_error import FitError
from kubeloop.scheduler.queue.nominator import UNCHANGED, WITHDRAWN, Nomination
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod
from support.scheduling.scheduling_attempts import SchedulingAttempts

pytestmark = pytest.mark.virtual_time


class Steps(SchedulingAttempts):
    """The steps on two nodes, and an attempt of a popped pod that requests `cpu`."""

    def __init__(self, clock: Any, cpu: str = "1") -> None:
        super().__init__(PluginCluster([make_node("a"), make_node("b", allocatable={"cpu": "2"})]), clock)
        self.attempt = Attempt(self.cluster.framework, self.pop(make_pod("p", cpu=cpu)), clock.time_ns())


async def test_node_is_chosen_among_the_given_rows(clock):
    steps = Steps(clock)
    snapshot = steps.cluster.snapshot
    row = snapshot.row_of["b"]
    assert await steps.steps.choose_node(steps.attempt, snapshot.all_rows[row : row + 1]) == "b"
    assert steps.attempt.facts.nodes == 1
    assert not steps.steps.awaits_call


async def test_pod_that_fits_on_none_of_the_given_rows(clock):
    steps = Steps(clock, cpu="3")
    snapshot = steps.cluster.snapshot
    row = snapshot.row_of["b"]
    with pytest.raises(FitError, match="0/1 nodes are available: 1 Insufficient cpu"):
        await steps.steps.choose_node(steps.attempt, snapshot.all_rows[row : row + 1])
    assert await steps.steps.choose_node(steps.attempt) == "a"


@pytest.mark.parametrize(
    ("result", "nomination"),
    [
        pytest.param((PostFilterResult("a", 2), Status(Code.SUCCESS)), Nomination("a"), id="preemption"),
        pytest.param((PostFilterResult(), unschedulable("X", "no victims")), WITHDRAWN, id="no candidates"),
        pytest.param((None, unschedulable("X", "not eligible")), UNCHANGED, id="nomination stays"),
    ],
)
async def test_post_filter_nominates_a_node(clock, result, nomination):
    steps = Steps(clock, cpu="9")
    with pytest.raises(FitError) as raised:
        await steps.steps.choose_node(steps.attempt)

    async def run_post_filter(*_: Any) -> Any:
        assert steps.steps.awaits_call
        return result

    steps.attempt.framework.filters.run_post_filter = run_post_filter  # type: ignore[method-assign]
    assert await steps.steps.post_filter(steps.attempt, raised.value) == nomination
    assert str(raised.value).endswith(result[1].message)
    assert steps.attempt.facts.victims == (2 if nomination.node_name else 0)
    assert not steps.steps.awaits_call


async def test_without_post_filters_a_nomination_is_cleared(clock):
    steps = Steps(clock, cpu="9")
    steps.attempt.framework.filters.post_filter = ()
    with pytest.raises(FitError) as raised:
        await steps.steps.choose_node(steps.attempt)
    assert await steps.steps.post_filter(steps.attempt, raised.value) == WITHDRAWN


async def test_reserved_pod_is_assumed_and_no_longer_in_flight(clock):
    steps = Steps(clock)
    steps.cluster.nominator.add(steps.attempt.pod_info, "b")
    assert steps.steps.assume_and_reserve(steps.attempt, "a")
    assert (steps.attempt.node, steps.attempt.facts.result) == ("a", "scheduled")
    assert [pod.spec.node_name for pod in steps.cluster.cache.assumed_pods()] == ["a"]
    assert "p" not in steps.queue.in_flight
    assert steps.cluster.nominator.node_of("p") == ""


async def test_pod_that_is_in_the_cache_already_is_requeued(clock):
    steps = Steps(clock)
    steps.cluster.cache.add_pod(make_pod("p", "b"))
    assert not steps.steps.assume_and_reserve(steps.attempt, "a")
    assert steps.messages == ["pod p(default/p) is in the cache, so can't be assumed"]
    assert "p" not in steps.queue.in_flight


@pytest.mark.parametrize("rejected", [True, False])
async def test_pod_that_reserve_rejects_is_requeued(clock, rejected):
    steps = Steps(clock)
    status = unschedulable("X", "no room") if rejected else Status(Code.ERROR, ("broken",), "X")
    steps.attempt.framework.reserve.run_reserve = lambda *_: status  # type: ignore[method-assign]
    assert not steps.steps.assume_and_reserve(steps.attempt, "a")
    assert steps.cluster.cache.assumed_pods() == []
    assert steps.messages == ["0/1 nodes are available: 1 no room." if rejected else "broken"]
    assert steps.attempt.reserve is not None
    assert steps.attempt.reserve.error == status.message


async def test_pod_with_its_node(clock):
    attempt = Steps(clock).attempt
    assumed = with_node(attempt, "n")
    assert (assumed.pod.spec.node_name, attempt.pod_info.pod.spec.node_name) == ("n", "")
    assert assumed.requests is attempt.pod_info.requests


@pytest.mark.parametrize(
    ("reported", "before", "after"),
    [
        pytest.param({"n": ("on n",)}, (), ("on n",), id="claims on the node"),
        pytest.param({"other": ("on other",)}, (), (), id="claims on other nodes"),
        pytest.param({}, ("stale",), (), id="no claims: former ones are removed"),
        pytest.param({}, (), (), id="none"),
    ],
)
async def test_pod_with_its_node_has_the_claims_of_that_node(clock, reported, before, after):
    attempt = Steps(clock).attempt
    status = msgspec.structs.replace(attempt.pod_info.pod.status, node_allocatable_resource_claim_statuses=before)
    attempt.pod_info = attempt.pod_info.with_pod(msgspec.structs.replace(attempt.pod_info.pod, status=status))
    attempt.state.node_allocatable_claims = reported
    assert with_node(attempt, "n").pod.status.node_allocatable_resource_claim_statuses == after


@pytest.mark.parametrize(
    ("facts", "steps"),
    [
        pytest.param({}, {}, id="failed at once"),
        pytest.param(
            {"pre_filter": (10, 30)},
            {"Snapshotting scheduler cache and node infos done": 10, "Computing predicates done": 20},
            id="no filters",
        ),
        pytest.param(
            {"pre_filter": (10, 30), "filter": (30, 60), "score": (60, 100)},
            {
                "Snapshotting scheduler cache and node infos done": 10,
                "Computing predicates done": 50,
                "Prioritizing done": 40,
            },
            id="all steps",
        ),
    ],
)
async def test_slow_cycle_is_logged_with_the_duration_of_its_steps(clock, caplog, facts, steps):
    attempt = Steps(clock).attempt
    attempt.start_ns = 5_000_000
    for step, (start, end) in facts.items():
        setattr(attempt.facts, f"{step}_start_ns", (start + 5) * 1_000_000)
        setattr(attempt.facts, f"{step}_end_ns", (end + 5) * 1_000_000)
    _log_slow_cycle(attempt, 205_000_000)
    (record,) = caplog.records
    assert vars(record)["steps"] == steps
    assert vars(record)["milliseconds"] == 200
    assert record.getMessage().startswith("slow scheduling cycle of default/p: 200 ms (")


@pytest.mark.parametrize(("milliseconds", "logged"), [(99, False), (100, True)])
async def test_cycle_is_slow_from_100_milliseconds_on(clock, caplog, milliseconds, logged):
    steps = Steps(clock)
    steps.attempt.start_ns = clock.time_ns() - milliseconds * 1_000_000
    await steps.steps.choose_node(steps.attempt)
    assert bool(caplog.records) is logged
