"""Rows of `kubeloop top`: pods, workloads and nodes."""

from __future__ import annotations

import pytest

from kubeloop.cli.top.rows import TopRow, cells, columns, node_rows, pod_rows, selected, short_age, workload_rows
from kubeloop.tracing.views.pod_lines import PodLine

SECOND = 1_000_000
NOW = 100 * SECOND


def line(name, stage, *, age=10, after=0, reason="", node="", owner="deployment/web"):
    return PodLine(
        key=name,
        trace_id="",
        namespace="shop",
        name=name,
        start_us=NOW - age * SECOND,
        duration_us=0,
        stage=stage,
        stage_after_us=after * SECOND,
        owner=owner,
        lower_owners=["replicaset/web-5f"],
        node=node,
        reason=reason,
    )


def test_pods_have_age_and_time_in_their_stage():
    (row,) = pod_rows([line("web-1", "queued", age=10, after=4), line("web-0", "gone"), line("web-x", "deleted")], NOW)
    assert (row.key, row.age_us, row.in_stage_us) == ("shop/web-1", 10 * SECOND, 6 * SECOND)


def test_workload_has_the_stage_of_its_least_advanced_pod():
    pods = pod_rows(
        [
            line("web-1", "ready", age=60),
            line("web-2", "unschedulable", after=5, reason="no room"),
            line("web-3", "unschedulable", after=1, reason="no node matches"),
            line("alone", "ready", owner=""),
            line("db-0", "ready", owner="statefulset/db"),
        ],
        NOW,
    )
    web, db = selected(workload_rows(pods), "", "name")
    assert (web.key, web.stage, web.pods, web.age_us) == ("shop/deployment/web", "unschedulable", "1/3", 60 * SECOND)
    assert (web.in_stage_us, web.reason) == (9 * SECOND, "no node matches")
    assert (db.stage, db.pods) == ("complete", "1/1")


def test_nodes_count_their_pods_that_have_not_ended():
    pods = pod_rows([line("a", "ready", node="n1"), line("b", "completed", node="n1")], NOW)
    node = {"name": "n1", "stage": "not ready", "created": "1970-01-01T00:00:40Z", "since": "", "reason": "down"}
    (row,) = node_rows([node], pods, NOW)
    assert (row.pods, row.age_us, row.in_stage_us, row.reason) == ("1", 60 * SECOND, 0, "down")


ROWS = [
    TopRow("shop/b", "ready", 5 * SECOND, 4 * SECOND, node="n1"),
    TopRow("shop/a", "failed", 9 * SECOND, 1 * SECOND, reason="exit code 1"),
    TopRow("shop/c", "queued", 2 * SECOND, None),
]


@pytest.mark.parametrize(
    ("sort", "names"), [("age", "cba"), ("name", "abc"), ("stage", "acb"), ("time", "bac")], ids=lambda value: value
)
def test_rows_are_sorted(sort, names):
    assert [row.key[-1] for row in selected(ROWS, "", sort)] == [*names]
    assert [row.key[-1] for row in selected(ROWS, "", sort, reverse=True)] == [*reversed(names)]


@pytest.mark.parametrize(("text", "names"), [("EXIT", "a"), ("shop n1", "b"), ("nope", ""), ("", "abc")])
def test_rows_are_filtered_by_all_words(text, names):
    assert [row.key[-1] for row in selected(ROWS, text, "name")] == [*names]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d"), (None, "")]
)
def test_ages_are_short(seconds, text):
    assert short_age(None if seconds is None else seconds * SECOND) == text


@pytest.mark.parametrize("view", ["pods", "workloads", "nodes"])
@pytest.mark.parametrize("width", [79, 120, 200])
def test_columns_fit_the_width(view, width):
    rows = [TopRow("shop/" + "x" * 90, "other scheduler", 0, 0, reason="r" * 300, node="n" * 50)]
    layout = columns(view, rows, width)
    assert sum(size + 2 for _, size in layout) == width
    assert len(cells(rows[0], layout)[0]) == layout[0][1]


def test_cut_name_keeps_its_end_and_texts_have_no_control_characters():
    row = TopRow("shop/checkout-7c9d8f6b5-x2x4z", "queued", 0, 0, reason="a\n\x1b[31mb")
    name, reason = cells(row, [("NAME", 20), ("REASON", 50)])
    assert name == "shop/checkout…-x2x4z"
    assert reason == "a ^[[31mb"
