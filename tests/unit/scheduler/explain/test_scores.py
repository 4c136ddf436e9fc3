"""Scores of the nodes of bound and pending pods, as `kubeloop explain --scores` shows them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.scheduler.explain.pending_pod import explain, explain_in_slices
from kubeloop.scheduler.explain.scores import ScoreExplanation, explain_scores

pytestmark = pytest.mark.virtual_time


def scores(scheduler: Any, key: str) -> ScoreExplanation:
    result = explain(scheduler, key, with_scores=True).scores
    assert result is not None
    return result


def of_plugin(explanation: ScoreExplanation, plugin: str) -> dict[str, tuple[int, int, int]]:
    return {
        node.node: (score.raw, score.normalized, score.weighted)
        for node in explanation.nodes
        for score in node.plugins
        if score.plugin == plugin
    }


async def test_scores_of_a_bound_pod_are_those_of_its_attempt(cluster, scheduling):
    cluster.node("busy", cpu="4")
    cluster.node("free", cpu="4")
    cluster.node("preferred", cpu="4", labels={"disk": "ssd"})
    cluster.pod("running", cpu="2", nodeName="busy")
    preference = {
        "weight": 10,
        "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
    }
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    async with scheduling() as scheduler:
        cluster.pod("p", cpu="1", affinity=affinity)
        await asyncio.sleep(0.5)
        explanation = scores(scheduler, "default/p")
    assert cluster.node_of("default/p") == explanation.node == "preferred"
    assert (explanation.rank, explanation.ties, explanation.feasible) == (1, 0, 3)
    assert of_plugin(explanation, "NodeAffinity") == {
        "preferred": (10, 100, 200), "free": (0, 0, 0), "busy": (0, 0, 0)
    }  # fmt: skip
    # least allocated: CPU 75 %, memory (200 MiB of 8 GiB, the default request) 97 %
    assert of_plugin(explanation, "NodeResourcesFit")["preferred"] == (86, 86, 86)
    assert [node.total for node in explanation.nodes] == sorted((n.total for n in explanation.nodes), reverse=True)
    assert all(node.total == sum(score.weighted for score in node.plugins) for node in explanation.nodes)


async def test_pods_bound_later_are_left_out(cluster, scheduling):
    cluster.node("a", cpu="4")
    async with scheduling() as scheduler:
        cluster.pod("first", cpu="1")
        await asyncio.sleep(2)
        alone = scores(scheduler, "default/first")
        cluster.pod("second", cpu="2")
        await asyncio.sleep(2)
        for name, second in (("first", 0), ("second", 2)):
            condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": f"2026-01-01T00:00:0{second}Z"}
            cluster.change_pod(f"default/{name}", status={"phase": "Pending", "conditions": [condition]})
        await asyncio.sleep(1)
        first, second = scores(scheduler, "default/first"), scores(scheduler, "default/second")
    assert (first.bound_later, second.bound_later) == (1, 0)
    assert first.nodes == alone.nodes
    assert of_plugin(second, "NodeResourcesFit")["a"] < of_plugin(first, "NodeResourcesFit")["a"]


async def test_scoring_leaves_the_snapshot_as_it_was(cluster, scheduling):
    for name in ("a", "b", "c"):
        cluster.node(name, cpu="4")
    async with scheduling() as scheduler:
        snapshot = scheduler.snapshot
        for number in range(6):
            cluster.pod(f"p{number}", cpu="1")
            await asyncio.sleep(0.5)
            scheduler.cache.update_snapshot(snapshot)
            before = list(snapshot.node_infos)
            scores(scheduler, "default/p0")
            assert snapshot.node_infos == before
            cpu = snapshot.columns.resource("cpu")
            requested = [node.requested.get("cpu", 0) for node in before]
            assert snapshot.columns.requested[cpu].tolist() == requested


async def test_node_that_no_longer_fits_has_no_rank(cluster, scheduling):
    cluster.node("a")
    async with scheduling() as scheduler:
        cluster.pod("p")
        await asyncio.sleep(0.5)
        cluster.node("a", unschedulable=True)
        await asyncio.sleep(0.5)
        nowhere = scores(scheduler, "default/p")
        cluster.node("b")
        await asyncio.sleep(0.5)
        elsewhere = scores(scheduler, "default/p")
    assert (nowhere.problem, nowhere.nodes) == ("the pod would fit no node now", [])
    assert (elsewhere.rank, elsewhere.feasible, [node.node for node in elsewhere.nodes]) == (0, 1, ["b"])


async def test_best_nodes_and_the_node_of_the_pod_are_shown(cluster, scheduling):
    cluster.node("worst", cpu="2")
    async with scheduling() as scheduler:
        cluster.pod("p", cpu="1")
        await asyncio.sleep(0.5)
        for number in range(30):
            cluster.node(f"better-{number}", cpu="16")
        await asyncio.sleep(0.5)
        explanation = (await explain_in_slices(scheduler, "default/p", with_scores=True)).scores
    assert explanation is not None
    assert (explanation.feasible, explanation.rank, len(explanation.nodes)) == (31, 31, 11)
    assert explanation.nodes[-1].node == "worst"


async def test_pending_pod_has_scores_of_the_nodes_it_fits(cluster, scheduling):
    cluster.node("a")
    async with scheduling() as scheduler:
        cluster.pod("gated", schedulingGates=[{"name": "wait"}])
        cluster.pod("impossible", cpu="100")
        cluster.pod("other", schedulerName="mine")
        await asyncio.sleep(0.5)
        gated = scores(scheduler, "default/gated")
        impossible = scores(scheduler, "default/impossible")
        other = scores(scheduler, "default/other")
    assert (gated.node, gated.rank, [node.node for node in gated.nodes]) == ("", 0, ["a"])
    assert impossible.problem == "the pod would fit no node now"
    assert other.problem == 'the scheduler "mine" is another one'


async def test_scores_are_computed_on_request_only(cluster, scheduling):
    cluster.node("a")
    async with scheduling() as scheduler:
        cluster.pod("p")
        await asyncio.sleep(0.5)
        assert "scores" not in explain(scheduler, "default/p").to_json()
        document = explain(scheduler, "default/p", with_scores=True).to_json()["scores"]
    assert document["boundLater"] == 0
    assert document["nodes"][0]["plugins"][0].keys() == {"plugin", "raw", "normalized", "weighted"}


async def test_scores_need_a_profile_of_this_scheduler(cluster, scheduling):
    cluster.node("a")
    async with scheduling() as scheduler:
        cluster.pod("other", schedulerName="other")
        await asyncio.sleep(0.1)
        explanation = explain_scores(scheduler, cluster.pods()[0])
    assert (explanation.problem, explanation.nodes) == ('the scheduler "other" is another one', [])


async def test_scores_are_not_computed_during_a_pause_of_a_cycle(cluster, scheduling, monkeypatch):
    cluster.node("a")
    async with scheduling() as scheduler:
        cluster.pod("p", schedulingGates=[{"name": "g"}])
        await asyncio.sleep(0.1)
        monkeypatch.setattr(type(scheduler), "awaits_call", property(lambda _: True))
        explanation = explain_scores(scheduler, cluster.pods()[0])
    assert explanation.problem == "the scheduler waits for an extender, devices or preemption, with its nodes in use"
    assert explanation.nodes == []


async def test_rejection_of_pre_filter_is_the_problem(cluster, scheduling):
    cluster.node("a")
    async with scheduling() as scheduler:
        cluster.pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}])
        await asyncio.sleep(0.1)
        explanation = explain_scores(scheduler, cluster.pods()[0])
    assert explanation.problem == 'persistentvolumeclaim "missing" not found'
