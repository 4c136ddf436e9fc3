"""kubeloop/planning/texts.py: the forms of a plan."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from kubeloop.planning.fit import MOST_RUNS
from kubeloop.planning.result import (
    BlockedDrain,
    DisplacedPod,
    FitResult,
    FitRun,
    ObjectChange,
    Plan,
    ResourceUse,
    UnplacedPods,
    WorkloadResult,
)
from kubeloop.planning.texts import plan_junit, plan_markdown, plan_text

CHECKOUT = WorkloadResult(
    "Deployment",
    "checkout",
    "shop",
    desired=12,
    created=8,
    placed=5,
    pools={"pool-a": 3, "pool-b": 2},
    pending=[UnplacedPods(3, "shop/checkout-1", "0/14 nodes are available: 9 Insufficient cpu.", ["add a node"])],
    rollout="failed",
    reasons=["3 pods are without a node"],
)
MIGRATE = WorkloadResult(
    "Job", "migrate", "shop", created=1, placed=1, nodes={"a-1": 1}, seconds=40.2, waits=["readiness 40 s"]
)
PLAN = Plan(
    "prod",
    "2026-01-01T00:00:00Z",
    fits=False,
    changes=[
        ObjectChange("change", "Deployment", "checkout", "shop", ["image 1.4 -> 1.5", "replicas 4 -> 12"]),
        ObjectChange("create", "Job", "migrate", "shop"),
    ],
    workloads=[CHECKOUT, MIGRATE],
    preempted=[DisplacedPod("batch/report-x2", "job/report in batch", "a-2", "preempted by shop/checkout-1", True)],
    evicted=[DisplacedPod("shop/lonely", "", "a-1", "evicted by the drain", False)],
    blocked=[BlockedDrain("a-1", "shop/db-0", "budget")],
    resources={"cpu": ResourceUse(6_100, 10_000, 8_400, 10_000), "pods": ResourceUse(1, 2, 3, 4)},
    nodes_before=14,
    nodes_after=14,
    would_help="1 node like a-1",
    findings=["prod: CronJobs start no Jobs in a plan; ..."],
)


def test_text_shows_changes_pods_reasons_and_resources():
    assert plan_text(PLAN).splitlines() == [
        "plan for prod at 2026-01-01T00:00:00Z",
        "~ deployment shop/checkout    image 1.4 -> 1.5, replicas 4 -> 12",
        "    5 of 8 new pods placed (pool-a 3, pool-b 2)",
        "    3 pending: 0/14 nodes are available: 9 Insufficient cpu.",
        "      would help: add a node",
        "    the rollout never completes",
        "      3 pods are without a node",
        "+ job shop/migrate",
        "    1 of 1 new pods placed (a-1 1)",
        "    complete after about 40 s (readiness 40 s)",
        "! preempts batch/report-x2 of job/report in batch on a-2: preempted by shop/checkout-1",
        "! evicts shop/lonely on a-1: evicted by the drain, and nothing replaces it",
        "! drain of a-1 never ends: shop/db-0: budget",
        "requested: cpu 61 % -> 84 % of 14 nodes",
        "would help: 1 node like a-1",
        "warning: prod: CronJobs start no Jobs in a plan; ...",
        "1 created, 1 changed, 0 deleted, 3 pods pending, 1 preempted, 1 evicted; not everything fits",
    ]


def test_text_of_no_change():
    assert plan_text(Plan("prod", "now")).splitlines() == [
        "plan for prod at now", "  nothing changes", "0 created, 0 changed, 0 deleted; everything fits",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "pending", "line"),
    [
        (None, {0: 4}, "no number of nodes like a-1 is enough (4 pending with 0)"),
        (0, {0: 0}, "nothing is pending without more nodes like a-1"),
        (1, {0: 4, 1: 0}, "1 more node like a-1 is enough (4 pending with 0; 0 pending with 1)"),
        (
            3,
            {0: 4, 3: 0},
            "3 more nodes like a-1 are enough (4 pending with 0; 0 pending with 3; fewer were not tried)",
        ),
    ],
)
def test_text_of_fit(nodes, pending, line):
    fit = FitResult("a-1", nodes, [FitRun(*run) for run in pending.items()])
    assert line in plan_text(Plan("prod", "now", fit=fit)).splitlines()


def test_text_of_fit_whose_search_ended():
    fit = FitResult("a-1", None, [FitRun(count, 20 - count) for count in range(MOST_RUNS)])
    assert "11 more nodes like a-1 are not enough" in plan_text(Plan("prod", "now", fit=fit))


def test_markdown_has_the_verdict_a_table_and_the_text():
    lines = plan_markdown(PLAN).splitlines()
    assert lines[0] == "### kubeloop plan: not everything fits"
    assert (
        "| `deployment shop/checkout` | 5 of 8 new pods placed (pool-a 3, pool-b 2) | 3 | "
        "the rollout never completes; 3 pods are without a node |"
    ) in lines
    assert "Requested of 14 nodes: cpu 61 % -> 84 %." in lines
    assert "Would help: 1 node like a-1." in lines
    assert lines[-1] == "</details>"


def test_junit_fails_for_what_does_not_fit():
    suite = ElementTree.fromstring(plan_junit(PLAN))
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    failures = {case.get("name"): case.find("failure") for case in suite}
    assert "Insufficient cpu" in failures["deployment shop/checkout"].get("message")
    assert failures["job shop/migrate"] is None
    assert failures["drain a-1: shop/db-0"].text == "budget"
