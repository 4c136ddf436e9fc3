"""Summary of the pods of a rollout."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.tracing.views.pod_lines import pod_line
from kubeloop.tracing.views.rollout import percentile, rollout
from support.traces.trace_documents import document, phases, pods, span


@given(st.lists(st.integers(0, 1000), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_percentile_is_nearest_rank(values, share):
    ordered = sorted(values)
    value_at_share = percentile(ordered, share)
    assert value_at_share in ordered
    assert sum(value <= value_at_share for value in ordered) >= len(ordered) * share
    below = [value for value in ordered if value < value_at_share]
    assert len(below) < len(ordered) * share


def test_rollout_summarizes_pods():
    summary = rollout("deployment shop/web", pods())
    assert summary.stages == {"bound": 199, "unschedulable": 1}
    assert [(times.phase, times.pods, times.max_us) for times in summary.phases] == [
        ("create", 200, 4000),
        ("queue", 200, 25_900),
    ]
    assert summary.total.p50_us == 20_000
    assert summary.total.pods == 199
    assert [line.name for line in summary.slowest(2)] == ["web-199", "web-198"]
    assert summary.rate == pytest.approx(199 / 0.2289)
    document_of_rollout = summary.document()
    assert document_of_rollout["slowest"][0] == "web-199"
    assert document_of_rollout["pods"][0]["segments"][0] == {"phase": "create", "offsetUs": 0, "durationUs": 4000}
    assert document_of_rollout["phases"][0]["p50Us"] == 4000


def test_time_to_bound_excludes_start_on_node():
    line = pod_line(
        document(span("bind", 0, 60), span("start sandbox", 60, 80), span("start init", 80, 100), outcome="ready")
    )
    assert phases(line) == [("bind", 0, 60), ("sandbox", 60, 20), ("init", 80, 20)]
    assert line.bound_after == (60_000, 0)
    summary = rollout("x", [line])
    assert (summary.total.max_us, summary.rate, summary.duration_us) == (60_000, 0.0, 100_000)


def test_pod_in_crash_back_off_counts_as_bound():
    children = span("schedule", 0, 40), span("container run", 40, 60), span("crash back-off", 60, 100)
    line = pod_line(document(*children, outcome="open"))
    assert line.stage == "crash back-off"
    assert rollout("x", [line]).total.max_us == 40_000


def observed(number, duration_ms, uncertainty_ms):
    """Return the line of a pod that is scheduled in a tenth of its duration, and then pulls its image."""
    bound_ms = duration_ms // 10
    scheduled = span("schedule", 0, bound_ms, kubeloop__end__uncertainty_ms=1)
    pull = span("image pull", bound_ms, duration_ms, kubeloop__start__uncertainty_ms=1)
    for edges in (scheduled, pull):
        edges["attributes"].setdefault("kubeloop.end.uncertainty_ms", uncertainty_ms)
    uncertain = {"kubeloop__end__uncertainty_ms": uncertainty_ms}
    return pod_line(document(scheduled, pull, outcome="ready", end_ms=duration_ms, name=f"web-{number}", **uncertain))


def test_uncertainty_of_phases_is_that_of_their_edges():
    line = observed(0, 1000, 300)
    assert line.edge_uncertainties == [0, 1000, 300_000]
    assert (line.uncertainty_us(), line.bound_after) == (300_000, (100_000, 1000))
    summary = rollout("x", [line])
    assert [(times.phase, times.uncertainty_us) for times in summary.phases] == [
        ("scheduling", 1000),
        ("pull", 300_000),
    ]
    assert summary.total.uncertainty_us == 1000
    assert summary.document()["phases"][1]["uncertaintyUs"] == 300_000


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 500), st.floats(-1, 1)), min_size=1, max_size=20))
def test_percentiles_of_true_times_are_within_the_uncertainty(pulls):
    """Each pull took nine times the first number, and truly longer or shorter by a share of the second."""
    summary = rollout("x", [observed(at, shown * 10, uncertain) for at, (shown, uncertain, _) in enumerate(pulls)])
    [pull] = [times for times in summary.phases if times.phase == "pull"]
    true_us = sorted(shown * 9000 + share * uncertain * 1000 for shown, uncertain, share in pulls)
    for share, shown_us in ((0.5, pull.p50_us), (0.9, pull.p90_us), (0.99, pull.p99_us), (1.0, pull.max_us)):
        assert abs(percentile(true_us, share) - shown_us) <= pull.uncertainty_us + 1


def test_total_counts_pods_that_no_longer_exist():
    lines = pods(6)
    for line, stage in zip(lines, ("unschedulable", "gone", "terminating", "failed", "deleted", "bound"), strict=True):
        line.stage, line.node = stage, "" if stage in ("unschedulable", "gone") else "n1"
    summary = rollout("x", lines)
    assert summary.total.pods == 5
    assert (summary.waiting, summary.waiting_max_us) == (1, lines[0].duration_us)
