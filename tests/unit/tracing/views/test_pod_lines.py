"""A pod as a line, many of them as a rollout, and both on a terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kubeloop.tracing.views.phases import KEYS, OTHER, PHASES, phase_index
from kubeloop.tracing.views.pod_lines import MAX_SEGMENTS, PodLine, pod_line, segments_of
from kubeloop.tracing.views.rollout import percentile, rollout
from kubeloop.tracing.views.rollout_view import rollout_log_line, rollout_view
from kubeloop.tracing.views.time_format import format_duration, format_time
from kubeloop.tracing.views.waterfall import waterfall

NS = 1_000_000  # nanoseconds in a millisecond


def span(name, start_ms, end_ms, *, parent="root", span_id="", error="", **attributes):
    return {
        "name": name,
        "spanId": span_id or f"{abs(hash((name, start_ms))):016x}"[:16],
        "parentSpanId": parent,
        "start": start_ms * NS,
        "end": end_ms * NS,
        "kind": "internal",
        "attributes": {key.replace("__", "."): value for key, value in attributes.items()},
        "links": [],
        "status": {"code": "ERROR", "message": error} if error else {"code": "OK"},
    }


def document(*children, outcome="bound", end_ms=100, name="web-1", error="", start_ms=0, **attributes):
    root = span(
        f"pod shop/{name}",
        start_ms,
        end_ms,
        parent="",
        span_id="root",
        error=error,
        **{
            "k8s__namespace__name": "shop",
            "k8s__pod__name": name,
            "k8s__pod__uid": f"uid-{name}",
            "kubeloop__outcome": outcome,
            **attributes,
        },
    )
    return {"traceId": "ab" * 16, "spans": [root, *children]}


def phases(line):
    return [(KEYS[phase], offset // 1000, took // 1000) for phase, offset, took in line.triples()]


def test_a_line_has_each_phase_at_its_time_and_tells_what_nothing_explains():
    line = pod_line(
        document(
            span("create", 0, 5),
            span("watch delivery", 5, 8),
            span("queue active", 8, 10),
            span("scheduling attempt 1", 10, 20, span_id="attempt"),
            span("filter", 12, 14, parent="attempt"),
            span("reserve", 20, 21),
            span("bind", 25, 90),
            span("confirmation", 90, 100),
            k8s__deployment__name="web",
            k8s__node__name="n1",
            kubeloop__attempts=1,
        )
    )
    assert phases(line) == [
        ("create", 0, 5),
        ("delivery", 5, 3),
        ("queue", 8, 2),
        ("scheduling", 10, 10),
        ("permit", 20, 1),
        ("other", 21, 4),
        ("bind", 25, 65),
        ("confirmation", 90, 10),
    ]
    assert (line.stage, line.owner, line.node, line.attempts, line.is_open) == (
        "bound",
        "deployment/web",
        "n1",
        1,
        False,
    )
    assert (line.namespace, line.name, line.key) == ("shop", "web-1", "root")


@pytest.mark.parametrize(
    ("last", "stage"),
    [
        ("create", "creating"),
        ("watch delivery", "delivery"),
        ("queue active", "queued"),
        ("queue backoff", "backoff"),
        ("queue unschedulable", "unschedulable"),
        ("queue gated", "gated"),
        ("scheduling attempt 3", "scheduling"),
        ("permit", "binding"),
        ("bind", "binding"),
        ("confirmation", "starting"),
        ("start containers", "starting"),
        ("terminating", "terminating"),
        ("other scheduler", "other scheduler"),
    ],
)
def test_the_stage_of_a_pod_on_its_way_is_the_last_thing_that_began(last, stage):
    line = pod_line(document(span("create", 0, 1), span(last, 1, 100), outcome="open"))
    assert line.stage == stage
    assert line.is_open


@pytest.mark.parametrize(
    ("outcome", "stage"), [("bound", "bound"), ("deleted", "deleted"), ("create failed", "failed")]
)
def test_the_stage_of_a_finished_pod_is_its_outcome(outcome, stage):
    assert pod_line(document(outcome=outcome)).stage == stage


def test_the_reason_is_the_schedulers_word_while_it_waits_and_the_error_when_it_failed():
    waiting = document(
        span("scheduling attempt 1", 0, 5, error="0/3 nodes", kubeloop__message="0/3 nodes are available"),
        span("queue unschedulable", 5, 100),
        outcome="open",
    )
    assert pod_line(waiting).reason == "0/3 nodes are available"
    assert pod_line(document(outcome="deleted", error="deleted before it was bound")).reason.startswith("deleted")
    assert pod_line(document(span("scheduling attempt 1", 0, 5, error="no"))).reason == ""


def test_the_trace_of_a_reconcile_has_no_line():
    assert pod_line({"traceId": "1" * 32, "spans": [span("reconcile deployment shop/web", 0, 1, parent="")]}) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from([p.prefixes[0] for p in PHASES if p.prefixes]), st.integers(0, 9000), st.integers(0, 9000)
        )
    )
)
def test_segments_cover_the_whole_time_without_overlap_whatever_the_spans_say(spans):
    children = [{"name": name, "start": min(a, b) * 1000, "end": max(a, b) * 1000} for name, a, b in spans]
    children.sort(key=lambda each: (each["start"], each["end"]))
    flat = segments_of(children, 1_000_000, 6000)
    triples = [flat[at : at + 3] for at in range(0, len(flat), 3)]
    assert len(triples) <= MAX_SEGMENTS
    until = 0
    for phase, offset, took in triples:
        assert 0 <= phase <= OTHER
        assert took > 0
        assert 0 <= offset - until <= 12
        until = offset + took
    assert 0 <= 6000 - until <= 12


def test_a_pod_of_many_attempts_keeps_its_first_and_its_last_segments():
    names = ["queue active", "scheduling attempt 1", "queue backoff"]
    children = [span(names[number % 3], number, number + 1) for number in range(300)]
    line = pod_line(document(*children, end_ms=300))
    assert len([*line.triples()]) == MAX_SEGMENTS
    assert sum(took for _, _, took in line.triples()) == line.duration_us


def test_every_name_of_a_span_under_the_root_has_a_phase():
    for name in ("create", "watch delivery", "queue active", "queue backoff", "queue gated", "scheduling attempt 12",
                 "reserve", "permit", "pre-bind", "bind", "confirmation"):  # fmt: skip
        assert phase_index(name) != OTHER, name
    assert phase_index("anything") == OTHER


@given(st.lists(st.integers(0, 1000), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(values, share):
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert found in ordered
    assert sum(each <= found for each in ordered) >= len(ordered) * share
    below = [each for each in ordered if each < found]
    assert len(below) < len(ordered) * share


def pods(count=200):
    return [
        PodLine(
            key=f"uid-{number}",
            trace_id=f"{number + 1:032x}",
            namespace="shop",
            name=f"web-{number:03}",
            start_us=1_000_000 + number * 1000,
            duration_us=10_000 + number * 100,
            stage="bound" if number else "unschedulable",
            segments=[0, 0, 4000, 2, 4000, 6000 + number * 100],
            reason="" if number else "0/3 nodes are available",
            is_open=not number,
        )
        for number in range(count)
    ]


def test_a_rollout_sums_up_its_pods():
    found = rollout("deployment shop/web", pods())
    assert found.stages == {"bound": 199, "unschedulable": 1}
    assert [(each.phase, each.pods, each.max_us) for each in found.phases] == [
        ("create", 200, 4000),
        ("queue", 200, 25_900),
    ]
    assert found.total.p50_us == 20_000
    assert found.total.pods == 199
    assert [line.name for line in found.slowest(2)] == ["web-199", "web-198"]
    assert found.rate == pytest.approx(199 / 0.2289)
    plain = found.document()
    assert plain["slowest"][0] == "web-199"
    assert plain["pods"][0]["segments"][0] == {"phase": "create", "offsetUs": 0, "durationUs": 4000}
    assert plain["phases"][0]["p50Us"] == 4000


def test_what_comes_after_the_binding_does_not_count_as_time_to_it():
    line = pod_line(
        document(span("bind", 0, 60), span("start sandbox", 60, 80), span("start init", 80, 100), outcome="ready")
    )
    assert phases(line) == [("bind", 0, 60), ("start", 60, 40)]
    assert line.bound_after_us == 60_000
    found = rollout("x", [line])
    assert (found.total.max_us, found.rate, found.duration_us) == (60_000, pytest.approx(1 / 0.06), 100_000)


def test_a_rollout_of_no_pods_is_drawn_as_such():
    found = rollout("deployment shop/web", [])
    assert found.rate == 0.0
    assert drawn(rollout_view(found)).split() == ["deployment", "shop/web", "0", "pods:", "none"]
    assert rollout_log_line(found) == "0 pods: none"


def drawn(view, width=120):
    console = Console(file=io.StringIO(), width=width)
    console.print(view)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_terminal_shows_lines_percentiles_and_the_slowest_at_any_width(width):
    text = drawn(rollout_view(rollout("deployment shop/web", pods()), max_lines=10), width)
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


def test_a_few_pods_are_all_drawn_and_no_list_of_the_slowest_repeats_them():
    text = drawn(rollout_view(rollout("deployment shop/web", pods(4))))
    assert [line.split()[0] for line in text.splitlines() if line.startswith("web-")] == [
        f"web-00{n}" for n in range(4)
    ]
    assert "slowest" not in text


def test_one_line_for_a_log():
    assert rollout_log_line(rollout("x", pods())).startswith("200 pods: 199 bound, 1 unschedulable; 869")


def test_a_waterfall_shows_what_has_no_parent_and_leaves_rows_out_only_when_asked():
    lost = span("from elsewhere", 10, 20, parent="not here")
    waits = [span(f"scheduling attempt {number}", number, number + 1) for number in range(1, 40)]
    whole = drawn(waterfall(document(lost, *waits)))
    assert "from elsewhere" in whole
    assert whole.count("scheduling attempt") == 39
    short = drawn(waterfall(document(lost, *waits), max_rows=12))
    assert "... 29 more" in short
    assert "scheduling attempt 39" in short
    assert "scheduling attempt 20" not in short


@pytest.mark.parametrize(
    ("microseconds", "written"),
    [(0, "0 µs"), (0.4, "< 1 µs"), (850, "850 µs"), (1234, "1.23 ms"), (12_345, "12.3 ms"), (123_456, "123 ms"),
     (999_600, "1.00 s"), (59_990_000, "1 min 00 s"), (125_000_000, "2 min 05 s"), (12_000_000_000, "3 h 20 min")],
)  # fmt: skip
def test_durations_have_three_digits_that_matter(microseconds, written):
    assert format_duration(microseconds) == written


def test_a_moment_that_no_calendar_has_is_still_written():
    assert format_time(1_700_000_000_123_456_789) == "2023-11-14 22:13:20.123 UTC"
    assert format_time((1 << 64) - 1) == "2554-07-21 23:34:33.709 UTC"
    assert format_time(1 << 80).endswith("s after 1970")
