"""`kubeloop explain`: parsing of the target, and rendering of the explanation."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kubeloop.cli import endpoint_client
from kubeloop.cli.explain import cluster as explain_cluster
from kubeloop.cli.explain.explain import format_quantity, group_rejections, help_lines, render_explanation, show
from kubeloop.cli.options.options import ExplainOptions, FeatureGateOptions
from kubeloop.kube.user_error import UserError
from kubeloop.process.process_files import ProcessRecord, default_process, process_file


def obstacle(plugin: str, *texts: str) -> dict[str, Any]:
    return {"plugin": plugin, "code": "Unschedulable", "reasons": list(texts)}


def node(name: str, *obstacles: dict[str, Any], preemption_helps: bool = False) -> dict[str, Any]:
    return {"node": name, "obstacles": list(obstacles), "preemptionHelps": preemption_helps}


def document(**fields: Any) -> dict[str, Any]:
    return {
        "pod": "default/p",
        "queue": "",
        "summary": "",
        "attempts": 0,
        "lastAttempt": "",
        "retrySeconds": 0.0,
        "rejectedBy": [],
        "message": "",
        "nodes": [],
        "shortages": {},
        "details": [],
        "advice": [],
        "preemption": "",
        "scheduling": True,
    } | fields


def text(explanation: dict[str, Any], width: int = 140) -> str:
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(render_explanation(explanation, width))
    return captured.get()


def group_document(**fields: Any) -> dict[str, Any]:
    return {
        "podGroup": "default/train",
        "summary": "it cannot be scheduled",
        "minCount": 4,
        "topologyKey": "",
        "pods": 4,
        "bound": 0,
        "gated": [],
        "permit": [],
        "lastAttempt": None,
        "shortages": {},
        "retrySeconds": 0.0,
        "pod": None,
        "scheduling": True,
    } | fields


def test_group_has_placements_pods_and_shortages():
    attempt = {
        "preemption": "no claims, preemption: 0/2 nodes are available.",
        "placements": [{"name": "r1", "message": "2 of 4 pods fit"}, {"name": "r2", "message": ""}],
    }
    explanation = group_document(
        topologyKey="rack",
        lastAttempt=attempt | {"placementCount": 3},
        gated=[{"pod": "w3", "plugin": "SchedulingGates", "reason": "waiting for scheduling gates: [quota]"}],
        permit=[{"pod": "w0", "node": "n0", "waitedSeconds": 42.4, "timeoutSeconds": 300.0}],
        shortages={"cpu": 1500},
        retrySeconds=3.0,
    )
    assert text(explanation).splitlines() == [
        "pod group default/train: it cannot be scheduled",
        "It has 4 pods, 0 of them bound; minCount 4. Next attempt in 3 s.",
        "",
        "Placements by rack:",
        "  - r1: 2 of 4 pods fit",
        "  - r2: fits",
        "  - and 1 more",
        "",
        "Pods that are gated:",
        "  - w3 by SchedulingGates: waiting for scheduling gates: [quota]",
        "",
        "Pods that have a node and wait on permit:",
        "  - w0 on n0, for 42 s of 300 s",
        "",
        "Missing for all of its pods, in the rack with most of it: 1500m of cpu.",
        "",
        "Preemption: 0/2 nodes are available.",
    ]


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        (
            [node("a"), node("b", obstacle("NodeName", "no"))],
            "Without the other pods of the group, pod default/p fits on",
        ),
        ([node("b", obstacle("NodeName", "node(s) didn't match"))], "pod default/p: it fits nowhere"),
    ],
)
def test_pod_of_a_group_is_explained_if_it_fits_nowhere(nodes: list[dict[str, Any]], line: str):
    pod = document(summary="it fits nowhere", nodes=nodes)
    explanation = group_document(pod=pod, notes=["a note"], scheduling=False, shortages={"cpu": 1000})
    lines = text(explanation).splitlines()
    assert "This process is not scheduling: it has just started, or another replica is the leader" in lines
    assert "Missing for all of its pods, on all nodes: 1 of cpu." in lines
    assert any(entry.startswith(line) for entry in lines)
    assert lines[-1] == "a note"


def test_rejections_are_grouped_and_sorted_by_frequency():
    full = obstacle("NodeResourcesFit", "Insufficient cpu", "Insufficient memory")
    rows = group_rejections(
        [
            node("tainted", obstacle("TaintToleration", "node(s) had untolerated taint(s)"), full),
            *(node(f"full-{number}", full) for number in range(8)),
            node("free"),
        ]
    )
    assert [(row.plugin, row.reasons, row.node_names) for row in rows] == [
        (
            "NodeResourcesFit",
            ["Insufficient cpu", "Insufficient memory"],
            "tainted, full-0, full-1, full-2, full-3, full-4 and 3 more",
        ),
        ("TaintToleration", ["node(s) had untolerated taint(s)"], "tainted"),
        ("", ["the pod fits here"], "free"),
    ]


def test_explanation_of_a_pending_pod_has_all_parts():
    summary = "0/2 nodes are available: 2 Insufficient cpu."
    out = text(
        document(
            queue="backoff",
            summary=summary,
            message=summary,
            attempts=3,
            retrySeconds=3.6,
            rejectedBy=["NodeResourcesFit"],
            nodes=[
                node("a", obstacle("NodeResourcesFit", "Insufficient cpu"), preemption_helps=True),
                node("b", obstacle("NodeResourcesFit", "Insufficient cpu")),
            ],
            shortages={"cpu": 1500, "memory": 3 << 29},
            advice=["request less, add a node, or free resources on a node"],
            preemption="preempting pods of lower priority would help on 1 of 2 nodes",
        )
    )
    assert out.count(summary) == 1
    assert "tried 3 times, again in 4 s; last rejected by NodeResourcesFit." in out
    assert "Insufficient cpu" in out
    assert "a, b" in out
    assert "shortage: 1500m of cpu, 1.5Gi of memory." in out
    assert "  - request less" in out
    assert "Preemption: preempting pods of lower priority would help on 1 of 2 nodes.\n  on a" in out


def test_explanation_includes_the_error_of_the_last_attempt():
    out = text(document(summary="the pod fits on 1 of 1 nodes now", lastAttempt="SchedulerError: no answer"))
    assert "Result of the last attempt: SchedulerError: no answer\n" in out


def test_explanation_of_a_bound_pod_is_one_line():
    assert text(document(summary="the pod is bound to a")) == "pod default/p: the pod is bound to a\n"


def test_explanation_states_that_the_process_is_not_scheduling():
    assert "another replica is the leader" in text(document(summary="the pod waits", scheduling=False))


def test_help_lines_do_not_repeat_the_word_preemption():
    lines = help_lines(document(preemption="preemption cannot help: no node would fit"))
    assert lines == ["Preemption: cannot help: no node would fit."]


@pytest.mark.parametrize(
    ("resource", "amount", "written"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 1 << 30, "1Gi"),
        ("memory", 3 << 19, "1.5Mi"),
        ("hugepages-2Mi", 4 << 20, "4Mi"),
        ("memory", 12, "12"),
        ("pods", 1, "1"),
        ("example.com/gpu", 2048, "2048"),
    ],
)
def test_format_quantity(resource, amount, written):
    assert format_quantity(resource, amount) == written


def test_notes_follow_the_advice():
    explanation = document(summary="no room", notes=["The scheduler's extenders are not called."])
    assert text(explanation).splitlines() == [
        "pod default/p: no room",
        "",
        "The scheduler's extenders are not called.",
    ]


def test_explanation_of_an_owner_starts_with_its_pods():
    owner = {"name": "statefulset shop/db", "pods": 3, "pending": 2}
    assert text(document(summary="no room", owner=owner)).splitlines() == [
        "statefulset shop/db: 2 of its pods (3) wait for a node; the first one:",
        "pod default/p: no room",
    ]
    assert text({"owner": owner | {"pending": 0}}) == "statefulset shop/db: none of its pods (3) waits for a node\n"


@pytest.fixture
def requests(tmp_path, monkeypatch) -> list[Any]:
    """The endpoints that are queried, and the (kubeconfig, context) of the clusters that are read."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    sources: list[Any] = []

    def get_json(path: str, query: Any, *, endpoint: str | None, hint: str) -> dict[str, Any]:
        sources.append(endpoint or default_process().endpoint)
        return document()

    def explain_in_cluster(target: Any, source: Any, config: Any, gates: Any, *, with_scores: bool) -> dict[str, Any]:
        sources.append(source)
        return document()

    monkeypatch.setattr(endpoint_client, "get_json", get_json)
    monkeypatch.setattr(explain_cluster, "explain_in_cluster", explain_in_cluster)
    return sources


def process(*, schedules: bool) -> ProcessRecord:
    return ProcessRecord(
        os.getpid(), "http://e", "https://s", ("/kube/config",), 1, context="prod", schedules=schedules
    )


@pytest.mark.parametrize(
    ("running", "options", "source"),
    [
        pytest.param(True, ExplainOptions(), "http://e", id="process with a scheduler"),
        pytest.param(False, ExplainOptions(), (("/kube/config",), "prod"), id="process without one: its cluster"),
        pytest.param(None, ExplainOptions(), ((), None), id="no process: the default kubeconfig"),
        pytest.param(True, ExplainOptions(kubeconfig=Path("/k:l")), (("/k:l",), None), id="explicit kubeconfig"),
        pytest.param(
            False,
            ExplainOptions(kubeconfig=Path("/kube/config"), kube_context="c"),
            (("/kube/config",), "c"),
            id="explicit context of the same kubeconfig",
        ),
        pytest.param(False, ExplainOptions(kube_context="c"), ((), "c"), id="explicit context"),
        pytest.param(True, ExplainOptions(config=Path("f")), (("/kube/config",), "prod"), id="explicit configuration"),
        pytest.param(False, ExplainOptions(endpoint="http://o"), "http://o", id="explicit endpoint"),
    ],
)
def test_source_is_a_scheduler_or_the_cluster(requests, running: bool | None, options: ExplainOptions, source: Any):
    listed = contextlib.nullcontext() if running is None else process_file(process(schedules=running))
    with listed:
        assert show("pod/p", options, FeatureGateOptions()) == 0
    assert requests == [source]


@pytest.mark.parametrize(
    ("kubeconfig", "source"),
    [
        pytest.param("/kube/config", (("/kube/config",), "prod"), id="that of the process: with its context"),
        pytest.param("/other:/more", (("/other", "/more"), None), id="another one: not that of the process"),
    ],
)
def test_kubeconfig_of_the_environment_takes_precedence(requests, monkeypatch, kubeconfig: str, source: Any):
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    with process_file(process(schedules=False)):
        assert show("pod/p", ExplainOptions(), FeatureGateOptions()) == 0
    assert requests == [source]


def test_endpoint_and_kubeconfig_are_mutually_exclusive():
    options = ExplainOptions(endpoint="http://o", kubeconfig=Path("k"))
    with pytest.raises(UserError, match="mutually exclusive"):
        show("pod/p", options, FeatureGateOptions())


@pytest.mark.parametrize(
    ("schedules", "source"),
    [
        (True, "source: http://e (pid "),
        (False, "source: the cluster https://s, whose pods no kubeloop process schedules"),
    ],
)
def test_answer_of_one_of_several_processes_names_it(requests, capsys, schedules: bool, source: str):
    with process_file(process(schedules=schedules)):
        assert show("pod/p", ExplainOptions(), FeatureGateOptions()) == 0
        assert capsys.readouterr().err == ""
        other = ProcessRecord(os.getppid(), "http://o", "https://o", ("/o",), 0)
        with process_file(other):
            assert show("pod/p", ExplainOptions(), FeatureGateOptions()) == 0
    assert capsys.readouterr().err.startswith(source)


@pytest.mark.parametrize(
    ("width", "heading"),
    [
        (200, ["nodes", "plugin", "reason", "which"]),
        (55, ["nodes", "plugin", "reason"]),
        (30, ["nodes", "reason"]),
    ],
)
def test_narrow_table_drops_columns_and_cuts_no_word(width: int, heading: list[str]) -> None:
    nodes = [
        node(f"node-{number}.example.com", {"plugin": "NodeResourcesFit", "reasons": ["Insufficient cpu"]})
        for number in range(1000, 1004)
    ]
    lines = text(document(summary="no room", nodes=nodes), width).splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.lstrip().startswith("nodes"))
    assert lines[start].split() == heading
    words = " ".join(lines[start + 2 :]).split()
    assert {"4", "Insufficient", "cpu"} <= set(words)
    assert ("node-1003.example.com" in words) == (width == 200)


def scores(**fields: Any) -> dict[str, Any]:
    def of(node: str, first: int, second: int) -> dict[str, Any]:
        plugins = [
            {"plugin": "TaintToleration", "raw": 0, "normalized": 100, "weighted": 100 * first},
            {"plugin": "NodeResourcesFit", "raw": second, "normalized": second, "weighted": second},
        ]
        return {"node": node, "total": 100 * first + second, "plugins": plugins}

    nodes = [of("node-0", 3, 75), of("node-1", 3, 50)]
    return {
        "node": "", "problem": "", "nodes": nodes, "feasible": 2, "rank": 0, "ties": 0, "boundLater": 0, "extenders": []
    } | fields  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"node": "node-0", "rank": 1}, "Of 2 nodes that the pod fits, node-0 has the highest score."),
        ({"node": "n", "rank": 1, "ties": 3}, "Of 2 nodes that the pod fits, n has the highest score, as 3 more."),
        ({"node": "node-1", "rank": 2}, "Of 2 nodes that the pod fits, node-1 has rank 2."),
        ({"node": "gone"}, "The pod would not fit gone now; it fits 2 nodes."),
        ({"feasible": 1}, "The pod fits 1 node; the highest score is that of node-0."),
        ({"problem": "the pod would fit no node now", "nodes": []}, "No scores: the pod would fit no node now"),
    ],
)  # fmt: skip
def test_scores_begin_with_the_rank_of_the_node(fields: dict[str, Any], sentence: str):
    assert sentence in text(document(scores=scores(**fields)), 120).splitlines()


def test_table_of_scores_begins_with_the_node_of_the_pod():
    lines = text(document(scores=scores(node="node-1", rank=2, boundLater=4, extenders=["http://e"])), 100).splitlines()
    (heading,) = (number for number, line in enumerate(lines) if line.startswith("weighted"))
    assert lines[heading].split()[-2:] == ["node-1", "node-0"]
    rows = [line.split(maxsplit=1) for line in lines[heading + 2 : heading + 5]]
    assert [name for name, _ in rows] == ["total", "TaintToleration", "NodeResourcesFit"]
    assert rows[0][1].split() == ["350", "375"]
    assert rows[1][1].split("   ")[0].strip() == "300 (0 to 100)"
    assert lines[heading + 5 :] == [
        "Scores are those of now, without this pod and 4 bound after it.",
        "Scores of extenders are not included: http://e.",
    ]


def test_narrow_table_of_scores_has_fewer_nodes():
    lines = text(document(scores=scores(node="node-1", rank=2)), 60).splitlines()
    (heading,) = (line for line in lines if line.startswith("weighted"))
    assert heading.split()[-1] == "node-1"
    assert all(len(line) <= 60 for line in lines)


def test_scores_are_requested_from_the_process(requests, monkeypatch):
    queries: list[Any] = []

    def get_json(path: str, query: Any, **_: Any) -> dict[str, Any]:
        queries.append(query)
        return document()

    monkeypatch.setattr(endpoint_client, "get_json", get_json)
    for with_scores in (False, True):
        assert show("pod/p", ExplainOptions(endpoint="http://o", with_scores=with_scores), FeatureGateOptions()) == 0
    assert queries == [{"pod": "p"}, {"pod": "p", "scores": "true"}]
