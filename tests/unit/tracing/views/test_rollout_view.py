"""Terminal view of a rollout."""

from __future__ import annotations

import msgspec
import pytest

from kubeloop.tracing.views.pod_lines import pod_line
from kubeloop.tracing.views.rollout import rollout
from kubeloop.tracing.views.rollout_view import rollout_log_line, rollout_view
from support.traces.trace_documents import document, pods, rendered, span


def test_view_of_rollout_without_pods():
    empty = rollout("deployment shop/web", [])
    assert empty.rate == 0.0
    assert rendered(rollout_view(empty)).split() == ["deployment", "shop/web", "0", "pods:", "none"]
    assert rollout_log_line(empty) == "0 pods: none"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_view_shows_lines_percentiles_and_slowest_at_any_width(width):
    text = rendered(rollout_view(rollout("deployment shop/web", pods()), max_lines=10), width)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    for expected in (
        "deployment shop/web",
        "199 bound, 1 unschedulable",
        "create",
        "queue",
        "10 of 200 pods",
        "slowest",
    ):
        assert expected in flat
    if width >= 80:
        assert "created to bound" in text
        assert "web-199" in text
        assert "25.9 ms" in text
        assert "█" in text


@pytest.mark.parametrize("width", [24, 30, 40, 60])
def test_narrow_view_drops_columns_and_cuts_no_number(width):
    wide, narrow = (
        rendered(rollout_view(rollout("deployment shop/web", pods()), max_lines=10), columns).splitlines()
        for columns in (200, width)
    )
    heading = next(line.split() for line in narrow if line.startswith("phase"))
    assert {"phase", "max"} <= set(heading) < {"phase", "pods", "p50", "p90", "p99", "max", "of", "all", "time"}
    total, narrow_total = (next(line for line in lines if "created to" in line) for lines in (wide, narrow))
    assert total.rstrip().endswith(narrow_total.rstrip()[-8:].lstrip())  # the maximum
    for line in (line for line in narrow if line.startswith("web-")):
        assert line.split()[-1] in ("ms", "µs", "s")


def test_long_names_are_complete_in_a_wide_view():
    (line,) = (msgspec.structs.replace(line, name="n" * 63) for line in pods(1))
    assert "n" * 63 in rendered(rollout_view(rollout("all pods", [line])), 100_000)


@pytest.mark.parametrize("width", [30, 60, 200])
def test_slowest_pods_have_room_for_their_durations(width):
    lines = [msgspec.structs.replace(line, name=f"{line.name}-{'n' * 40}") for line in pods(9)]
    text = rendered(rollout_view(rollout("all pods", lines), max_lines=3), width)
    slowest = text.partition("slowest:")[2].splitlines()[1]
    assert "10.8 ms" in slowest
    assert ("…" in slowest) == (width < 60)


def test_small_rollout_shows_all_pods_without_slowest_list():
    text = rendered(rollout_view(rollout("deployment shop/web", pods(4))))
    assert [line.split()[0] for line in text.splitlines() if line.startswith("web-")] == [
        f"web-00{n}" for n in range(4)
    ]
    assert "slowest" not in text


def test_log_line_of_rollout():
    assert rollout_log_line(rollout("x", pods())).startswith("200 pods: 199 bound, 1 unschedulable; 869")


def test_uncertain_durations_are_marked():
    edges = {"kubeloop__start__uncertainty_ms": 300, "kubeloop__end__uncertainty_ms": 20}
    line = pod_line(document(span("image pull", 0, 1000, **edges), outcome="ready", end_ms=1000, **edges))
    text = rendered(rollout_view(rollout("deployment shop/web", [line])))
    heading, pull = (text_line for text_line in text.splitlines() if "phase " in text_line or "image pull" in text_line)
    assert heading.split()[-5:-3] == ["exact", "to"]
    assert " ".join(pull.split()).endswith("1.00 s ±300 ms 100%")
    assert "1.00 s ±300 ms" in text
    bound = rollout("deployment shop/web", [pod_line(document(span("schedule", 0, 1000), end_ms=1000, **edges))])
    assert rollout_log_line(bound).endswith("p99 1.00 s, exact to 300 ms")
    assert "±" not in rendered(rollout_view(rollout("deployment shop/web", pods(4))))


def test_slowest_pods_have_the_sum_of_a_phase():
    """Every five minutes, an unschedulable pod is tried again."""
    waits = [span("queue unschedulable", minute * 60_000, (minute + 5) * 60_000 - 1) for minute in range(0, 45, 5)]
    attempts = [span("scheduling attempt", wait["end"] // 10**6, wait["end"] // 10**6 + 1) for wait in waits]
    line = pod_line(document(*waits, *attempts, outcome="open", end_ms=45 * 60_000))
    text = rendered(rollout_view(rollout("x", [line, line]), max_lines=1))
    assert "waiting 45 min 00 s" in text.partition("slowest:")[2]


def test_pods_that_wait_are_not_left_out_of_the_summary():
    summary = rollout("x", pods())
    assert "1 pod not bound for up to 10.0 ms" in rendered(rollout_view(summary))
    assert rollout_log_line(summary).endswith("; 1 pod not bound")


def test_slow_rate_is_not_zero():
    lines = pods(3)[1:]
    lines[1].start_us += 100_000_000
    assert "; 0.02 pods bound/s; " in rollout_log_line(rollout("x", lines))
