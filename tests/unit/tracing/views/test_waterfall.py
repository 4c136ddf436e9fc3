"""Terminal view of one trace."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kubeloop.tracing.views.waterfall import waterfall
from support.traces.pod_traces import trace_pod
from support.traces.trace_documents import document, rendered, span


@pytest.mark.parametrize("width", [40, 80, 200])
def test_waterfall_shows_spans_durations_and_details(tracing, pod, manual_clock, width):
    trace_pod(tracing, pod, manual_clock, "a", 1500)
    console = Console(file=io.StringIO(), width=width)
    console.print(waterfall(tracing.recent.slowest()))
    text = console.file.getvalue()
    assert "1.50 s" in text
    flat = " ".join(text.split())
    for expected in (
        "queue active",
        "filter",
        "score",
        "on n1",
        "NodeAffinity rejected 3",
        "n1 100",
        "queue active: PodAdd",
    ):
        assert expected in flat
    assert ("█" in text) == (width >= 80)  # a narrow terminal has no room for bars; no duration is cut
    assert max(map(len, text.splitlines())) <= width


def test_waterfall_of_trace_without_spans():
    console = Console(file=io.StringIO(), width=80)
    console.print(waterfall({"traceId": "abc", "spans": []}))
    assert "no spans" in console.file.getvalue()


def test_waterfall_shows_orphan_spans_and_limits_rows():
    orphan = span("from elsewhere", 10, 20, parent="not here")
    attempts = [span(f"scheduling attempt {number}", number, number + 1) for number in range(1, 40)]
    text = rendered(waterfall(document(orphan, *attempts)))
    assert "from elsewhere" in text
    assert text.count("scheduling attempt") == 39
    short = rendered(waterfall(document(orphan, *attempts), max_rows=12))
    assert "... 29 more" in short
    assert "scheduling attempt 39" in short
    assert "scheduling attempt 20" not in short


def test_uncertain_edges_are_shaded_and_marked():
    exact = span("schedule", 0, 40)
    pull = span(
        "image pull", 40, 80, container__image__name="app:1",
        kubeloop__start__uncertainty_ms=10, kubeloop__end__uncertainty_ms=20,
    )  # fmt: skip
    text = rendered(waterfall(document(exact, pull, kubeloop__observed=True)))
    uncertain = next(line for line in text.splitlines() if "image pull app:1" in line)
    bar = uncertain.partition("app:1")[2]
    columns = {glyph: bar.count(glyph) for glyph in "░█▒"}
    assert columns["░"] * 2 == columns["▒"] == columns["█"]
    assert bar.index("░") < bar.index("█") < bar.index("▒")
    assert uncertain.rstrip().endswith("40.0 ms ±20.0 ms")
    certain = next(line for line in text.splitlines() if "schedule " in line)
    assert not set("░▒±") & set(certain)
    assert "(observed)" in text
    assert "an edge lies in here" in " ".join(text.split())


def test_reconstructed_trace_is_marked():
    text = rendered(
        waterfall(document(span("schedule", 0, 100), kubeloop__observed=True, kubeloop__reconstructed=True))
    )
    assert "reconstructed from the object" in " ".join(text.split())


def test_group_has_its_attempts_and_placements(traced_group):
    text = rendered(waterfall(traced_group[-1]))
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0].startswith("pod group shop/train  37.0 ms, from ")
    assert lines[0].endswith("in progress")
    rows = [
        "pod group shop/train",
        "quorum wait",
        "group attempt 1",
        "placement rack=a",
        "group wait",
        "group attempt 2",
    ]
    assert all(line.startswith(row) for line, row in zip(lines[2:8], rows, strict=True))
    assert "quorum wait: until 2 pods exist (minCount)" in lines
    assert "group attempt 1: 0/1 placements are available" in lines
    assert "placement rack=a: 1 of 2 pods fit" in lines
