"""The scheduling algorithm: choice of a node, ties, sampling and extenders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubeloop.scheduler.api.extender import ExtenderError
from kubeloop.scheduler.api.extension_points import FilterPaused
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempts.algorithm import Algorithm, num_feasible_nodes_to_find
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.fit_error import FitError, NoNodesAvailable
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod


class Extender:
    """An extender that accepts the nodes of `feasible`, with scores; `error` is raised instead."""

    weight = 1
    filters = prioritizes = True

    def __init__(self, feasible: dict[str, int], *, error: bool = False, ignorable: bool = False) -> None:
        self.feasible = feasible
        self.error = error
        self.ignorable = ignorable

    def is_interested(self, pod: Any) -> bool:
        return True

    async def filter(self, pod: Any, nodes: Any) -> Any:
        if self.error:
            raise ExtenderError("no response")
        self.failed = {node.name: "rejected by extender" for node in nodes if node.name not in self.feasible}
        self.failed_and_unresolvable: dict[str, str] = {}
        return self

    async def prioritize(self, pod: Any, nodes: Any) -> dict[str, int]:
        if self.error:
            raise ExtenderError("no response")
        return self.feasible


def algorithm(
    cluster: PluginCluster, *extenders: Any, percentage: int | None = None, tie_break: Any = "roundRobin"
) -> Algorithm:
    return Algorithm(
        cluster.snapshot,
        percentage_of_nodes_to_score=percentage,
        tie_break=tie_break,
        extenders=extenders,
        rng=cluster.rng,
        now_ns=cluster.clock.time_ns,
    )


def new_attempt(cluster: PluginCluster, pod: Any = None) -> Attempt:
    return Attempt(cluster.framework, QueuedPodInfo(PodInfo(pod or make_pod("p", cpu="1")), 0))


async def schedule(chosen: Algorithm, cluster: PluginCluster, pod: Any = None) -> AttemptFacts:
    """Return the facts of an attempt, with the chosen node."""
    attempt = new_attempt(cluster, pod)
    assert await chosen.schedule(attempt) == attempt.facts.node
    return attempt.facts


def nodes(count: int, **changes: Any) -> PluginCluster:
    return PluginCluster([make_node(f"n{number}", **changes) for number in range(count)])


async def test_no_nodes_raises_no_nodes_available() -> None:
    cluster = nodes(0)
    with pytest.raises(NoNodesAvailable):
        await schedule(algorithm(cluster), cluster)


async def test_rejections_raise_fit_error_with_counts() -> None:
    cluster = nodes(2, allocatable={"cpu": "1"})
    attempt = new_attempt(cluster, make_pod("p", cpu="2"))
    facts = attempt.facts
    with pytest.raises(FitError, match="0/2 nodes are available: 2 Insufficient cpu"):
        await algorithm(cluster).schedule(attempt)
    assert (facts.nodes, facts.feasible, facts.rejections) == (2, 0, {"NodeResourcesFit": 2})


async def test_least_requested_node_is_chosen_and_traced() -> None:
    cluster = nodes(3)
    for number in (0, 2):
        cluster.cache.add_pod(make_pod(f"placed-{number}", f"n{number}", cpu="2"))
    cluster.refresh()
    facts = await schedule(algorithm(cluster), cluster)
    assert (facts.node, facts.feasible) == ("n1", 3)
    assert facts.best_nodes == ("n1", "n0", "n2")
    assert facts.best_totals[0] > facts.best_totals[1] == facts.best_totals[2]


async def test_only_feasible_node_is_not_scored() -> None:
    cluster = PluginCluster([make_node("full", allocatable={"cpu": "0"}), make_node("free")])
    facts = await schedule(algorithm(cluster), cluster)
    assert (facts.node, facts.feasible) == ("free", 1)
    assert (facts.score_end_ns, facts.best_nodes, facts.best_totals) == (0, (), ())


@pytest.mark.parametrize(
    ("tie_break", "expected"),
    [
        pytest.param("roundRobin", ["n0", "n1", "n2", "n0"], id="round robin"),
        pytest.param("random", ["n1", "n0", "n1", "n2"], id="random, from the seed"),
    ],
)
async def test_equal_scores_are_decided_by_tie_break(tie_break: str, expected: list[str]) -> None:
    cluster = nodes(3)
    chosen = algorithm(cluster, tie_break=tie_break)
    assert [(await schedule(chosen, cluster)).node for _ in range(4)] == expected


async def test_sampling_continues_where_it_stopped() -> None:
    cluster = nodes(250)
    chosen = algorithm(cluster, percentage=40)
    placements = [await schedule(chosen, cluster) for _ in range(3)]
    assert [placement.feasible for placement in placements] == [100, 100, 100]
    order = [cluster.snapshot.row_of[placement.node] for placement in placements]
    # Rows 0-99, 100-199, and 200-249 with 0-49; round robin takes the first, second and third of them.
    assert order == [0, 101, 2]


async def test_sampling_counts_infeasible_nodes_as_processed() -> None:
    cluster = PluginCluster([make_node(f"n{n}", allocatable={"cpu": "4" if n % 2 else "0"}) for n in range(300)])
    chosen = algorithm(cluster, percentage=30)
    placements = [await schedule(chosen, cluster) for _ in range(2)]
    # 100 feasible rows are found in 0-199, then in 200-299 and 0-99.
    assert [cluster.snapshot.row_of[placement.node] for placement in placements] == [1, 3]


async def test_nominated_node_is_tried_alone_first() -> None:
    cluster = nodes(3)
    pod = make_pod("p", cpu="1", status={"nominatedNodeName": "n2"})
    facts = await schedule(algorithm(cluster), cluster, pod)
    assert (facts.node, facts.feasible) == ("n2", 1)
    cluster.cache.add_pod(make_pod("placed", "n2", cpu="4"))
    cluster.refresh()
    facts = await schedule(algorithm(cluster), cluster, pod)
    assert (facts.node, facts.feasible) == ("n0", 2)


@pytest.mark.parametrize(("candidates", "feasible"), [([1, 2], 1), ([0, 1], 2)])
async def test_nominated_node_is_tried_first_if_it_is_a_candidate(candidates: list[int], feasible: int) -> None:
    cluster = nodes(3)
    attempt = new_attempt(cluster, make_pod("p", cpu="1", status={"nominatedNodeName": "n2"}))
    chosen = await algorithm(cluster).schedule(attempt, np.array(candidates, np.intp))
    assert (chosen == "n2", attempt.facts.feasible) == (2 in candidates, feasible)


async def test_extender_filters_and_adds_weighted_scores() -> None:
    cluster = nodes(3)
    facts = await schedule(algorithm(cluster, Extender({"n0": 1, "n2": 10})), cluster)
    assert (facts.node, facts.feasible) == ("n2", 2)
    assert facts.rejections == {"Extender": 1}
    scores = dict(zip(facts.best_nodes, facts.best_totals, strict=True))
    assert scores["n2"] - scores["n0"] == 90


async def test_failed_extender_is_an_error_unless_ignorable() -> None:
    cluster = nodes(2)
    with pytest.raises(SchedulingError, match="no response"):
        await schedule(algorithm(cluster, Extender({}, error=True)), cluster)
    facts = await schedule(algorithm(cluster, Extender({}, error=True, ignorable=True)), cluster)
    assert (facts.node, facts.feasible) == ("n0", 2)


async def test_error_on_the_nominated_node_is_logged_and_other_nodes_are_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = nodes(2)
    filters = cluster.framework.filters
    run_filters, failures = filters.run_filters, iter([SchedulingError("broken", "Mine")])

    def fail_once(*args: Any) -> Any:
        error = next(failures, None)
        if error is not None:
            raise error
        return run_filters(*args)

    filters.run_filters = fail_once  # type: ignore[method-assign]
    pod = make_pod("p", cpu="1", status={"nominatedNodeName": "n1"})
    assert (await schedule(algorithm(cluster), cluster, pod)).feasible == 2
    assert [record.getMessage() for record in caplog.records] == ["evaluation failed on the nominated node"]


async def test_filters_run_again_after_a_pause() -> None:
    cluster = nodes(2)
    filters = cluster.framework.filters
    run_filters, events = filters.run_filters, list[str]()

    async def work() -> None:
        events.append("work")

    def pause_once(state: Any, pod: Any, snapshot: Any, rows: Any, diagnosis: Any) -> Any:
        events.append("filters" if state.can_pause else "cannot pause")
        if len(events) == 1:
            diagnosis.node_to_status.set("n0", Status(Code.UNSCHEDULABLE, ("before the pause",)))
            raise FilterPaused(work())
        return run_filters(state, pod, snapshot, rows, diagnosis)

    filters.run_filters = pause_once  # type: ignore[method-assign]
    attempt = new_attempt(cluster)
    await algorithm(cluster).schedule(attempt)
    assert events == ["filters", "work", "filters"]
    assert (attempt.facts.feasible, attempt.facts.rejections) == (2, None)
    assert not attempt.state.can_pause


@pytest.mark.parametrize(
    ("nodes", "percentage", "feasible"),
    [
        pytest.param(0, 0, 0, id="no nodes"),
        pytest.param(99, 0, 99, id="small cluster: all"),
        pytest.param(99, 10, 99, id="small cluster: all, whatever the percentage"),
        pytest.param(100, 0, 100, id="at least 100"),
        pytest.param(200, 30, 100, id="60 are fewer than 100"),
        pytest.param(1000, 0, 420, id="adaptive: 50 - 1000 / 125 = 42 %"),
        pytest.param(5000, 0, 500, id="adaptive: 10 %"),
        pytest.param(6000, 0, 300, id="adaptive: at least 5 %"),
        pytest.param(1000, 30, 300, id="configured percentage"),
        pytest.param(1001, 33, 330, id="rounded down"),
        pytest.param(1000, 100, 1000, id="all"),
    ],
)
def test_filtering_stops_at_a_share_of_the_nodes(nodes, percentage, feasible):
    assert num_feasible_nodes_to_find(nodes, percentage) == feasible


async def test_plugins_that_limit_the_nodes_have_rejected_the_others() -> None:
    """Their events may help the pod, too."""
    cluster = nodes(2, allocatable={"cpu": "1"})
    terms = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    with pytest.raises(FitError) as raised:
        await schedule(algorithm(cluster), cluster, make_pod("p", cpu="2", affinity=affinity))
    assert raised.value.diagnosis.unschedulable_plugins == {"NodeAffinity", "NodeResourcesFit"}


async def test_nodes_that_an_extender_calls_unresolvable_are_not_candidates_of_preemption() -> None:
    class Unresolvable(Extender):
        async def filter(self, pod: Any, nodes: Any) -> Any:
            self.failed = {"n0": "busy"}
            self.failed_and_unresolvable = {"n1": "wrong"}
            return self

    cluster = nodes(2)
    with pytest.raises(FitError) as raised:
        await schedule(algorithm(cluster, Unresolvable({})), cluster)
    statuses = [raised.value.diagnosis.node_to_status.get(name) for name in ("n0", "n1")]
    assert [status.code for status in statuses] == [Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE]
    assert [status.reasons for status in statuses] == [("busy",), ("wrong",)]


async def test_other_scores_decide_if_an_extender_cannot_prioritize() -> None:
    class Failing(Extender):
        filters = False

    cluster = nodes(3)
    extenders = [Failing({}, error=True), Preferring({"n2": 10})]
    assert (await schedule(algorithm(cluster, *extenders), cluster)).node == "n2"


class Preferring(Extender):
    filters = False
