"""Recorder of pod groups: which groups are followed, and when their traces start and end."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.tracing.recording import pod_group_recorder
from kubeloop.tracing.recording.pod_group_recorder import PodGroupRecorder
from kubeloop.tracing.sampling.samplers import parse_tail_rules
from kubeloop.tracing.spans.pod_group_spans import pod_group_trace
from support.traces.pod_traces import MS
from support.traces.span_tree import check_spans
from support.traces.traced_groups import TracedGroup, pod_group


@pytest.fixture
def group(tracing, pod, manual_clock):
    return TracedGroup(tracing, pod, manual_clock)


def spans_ms(trace):
    """Return start and end of the children of the root, in milliseconds since its start."""
    root = trace.root
    return [
        (span.name, (span.start_ns - root.start_ns) / MS, (span.end_ns - root.start_ns) / MS)
        for span in trace.spans[1:]
        if span.parent_span_id == root.span_id
    ]


async def test_trace_lasts_from_first_pod_to_last_binding(tracing, group, manual_clock, exporter):
    tracing.groups.group_observed(pod_group())
    group.observe(0)
    manual_clock.pass_ms(10)
    group.observe(1)
    manual_clock.pass_ms(5)
    group.attempt("unschedulable", pods=2, message="0/3 nodes are available")
    manual_clock.pass_ms(20)
    group.attempt("scheduled", pods=2, scheduled_pods=2)
    group.bind(0, 1)
    (trace,) = await group.finished(exporter)
    assert spans_ms(trace) == [
        ("quorum wait", 0, 10),
        ("group wait", 10, 15),
        ("group attempt", 15, 17),
        ("group wait", 17, 37),
        ("group attempt", 37, 39),
        ("group binding", 39, 45),
    ]
    attributes = trace.root.attributes
    assert attributes["kubeloop.pod_group.outcome"] == "bound"
    assert (attributes["kubeloop.pod_group.pods"], attributes["kubeloop.pod_group.bound_pods"]) == (2, 2)
    assert attributes["kubeloop.pod_group.workload"] == "training"
    assert [event.name for event in trace.root.events] == ["quorum reached", "placement found", "last pod bound"]


async def test_traces_of_pods_and_group_are_linked(tracing, group, exporter):
    group.observe(0)  # before the PodGroup
    tracing.groups.group_observed(pod_group())
    group.observe(1)
    group.attempt("scheduled", pods=2, scheduled_pods=2)
    group.bind(0, 1)
    (trace,) = await group.finished(exporter)
    pods = [other for other in exporter.traces if other.root.name == "pod"]
    assert [link.traceparent.split("-")[1] for link in trace.root.links] == [pod.trace_id for pod in pods]
    for other in pods:
        (link,) = other.root.links
        assert (link.relation, link.traceparent.split("-")[1]) == ("pod group", trace.trace_id)
        assert other.root.attributes["kubeloop.pod_group.name"] == "train"


async def test_group_of_one_process_has_same_id_in_the_next(make_tracing, pod, manual_clock, make_exporter):
    ids = []
    for seed in (1, 2):
        exporter = make_exporter()
        tracing = make_tracing(manual_clock, exporter, seed=seed)
        group = TracedGroup(tracing, pod, manual_clock)
        tracing.groups.group_observed(pod_group(min_count=1))
        group.observe(0)
        group.bind(0)
        ids += [trace.trace_id for trace in await group.finished(exporter)]
    assert len(ids) == 2
    assert len(set(ids)) == 1


@pytest.mark.parametrize("restarted", [False, True])
async def test_pods_that_come_later_get_a_further_trace(
    restarted, make_tracing, tracing, pod, group, manual_clock, exporter
):
    tracing.groups.group_observed(pod_group(min_count=1))
    group.observe(0)
    group.bind(0)
    await group.finished(exporter)
    if restarted:
        group.tracing = make_tracing(manual_clock, exporter, seed=2)
        group.tracing.groups.group_observed(pod_group(min_count=1, scheduled=True))
        group.observe(0, node="n1")
    group.observe(1)
    group.bind(1)
    first, second = await group.finished(exporter)
    assert first.trace_id != second.trace_id
    assert second.root.attributes["kubeloop.pod_group.bound_pods"] == 2


async def test_pod_that_comes_soon_after_the_last_binding_continues_the_trace(tracing, group, manual_clock, exporter):
    tracing.groups.group_observed(pod_group(min_count=0))
    group.observe(0)
    group.bind(0)
    manual_clock.pass_ms(500)
    await tracing.flush()
    group.observe(1)
    group.bind(1)
    (trace,) = await group.finished(exporter)
    assert trace.root.attributes["kubeloop.pod_group.pods"] == 2
    assert "kubeloop.pod_group.min_count" not in trace.root.attributes


async def test_gang_below_its_quorum_is_not_complete(tracing, group, exporter):
    tracing.groups.group_observed(pod_group(min_count=3))
    group.observe(0, 1)
    group.bind(0, 1)
    assert await group.finished(exporter) == []
    group.observe(2)
    group.bind(2)
    (trace,) = await group.finished(exporter)
    assert trace.root.attributes["kubeloop.pod_group.bound_pods"] == 3


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        pytest.param(
            lambda group: group.tracing.groups.group_deleted(pod_group()),
            "deleted before all of its pods were bound",
            id="group",
        ),
        pytest.param(
            lambda group: group.delete(0, 1), "its pods were deleted or ended before all of them were bound", id="pods"
        ),
        pytest.param(
            lambda group: group.tracing.groups.group_observed(pod_group(uid="other")),
            "deleted and created again",
            id="group created again",
        ),
    ],
)
async def test_deletion_ends_the_trace_with_error(end, reason, tracing, group, exporter):
    tracing.groups.group_observed(pod_group())
    group.observe(0, 1)
    group.attempt("unschedulable", pods=2, message="0/3 nodes are available")
    end(group)
    (trace,) = await group.finished(exporter)
    assert trace.root.error == reason
    assert trace.root.attributes["kubeloop.pod_group.outcome"] == "deleted"


async def test_deleted_group_whose_pods_are_bound_has_no_error(tracing, group, exporter):
    tracing.groups.group_observed(pod_group())
    group.observe(0, 1)
    group.bind(0, 1)
    tracing.groups.group_deleted(pod_group())
    (trace,) = await group.finished(exporter)
    assert trace.root.error is None


async def test_deletion_of_the_last_waiting_pod_completes_the_group(tracing, group, exporter):
    tracing.groups.group_observed(pod_group(min_count=1))
    group.observe(0, 1)
    group.bind(0)
    assert await group.finished(exporter) == []
    group.delete(1)
    (trace,) = await group.finished(exporter)
    assert trace.root.attributes["kubeloop.pod_group.outcome"] == "bound"


async def test_timeout_on_permit_is_recorded(tracing, group, manual_clock, exporter):
    tracing.groups.group_observed(pod_group())
    group.observe(0, 1)
    group.attempt("scheduled", pods=2, scheduled_pods=2)
    for number in (0, 1):
        tracing.groups.permit_started(group.pod(number))
    manual_clock.pass_ms(300_000)
    for number in (0, 1):
        tracing.groups.permit_finished(group.pod(number), "rejected due to timeout")
    manual_clock.pass_ms(10)
    group.attempt("scheduled", pods=2, scheduled_pods=2)
    group.bind(0, 1)
    (trace,) = await group.finished(exporter)
    (permit,) = (span for span in trace.spans if span.name == "permit")
    assert permit.error == "rejected due to timeout"
    assert permit.attributes["kubeloop.rejected_pods"] == 2
    assert (permit.end_ns - permit.start_ns) / MS == 300_000
    (rejected,) = (event for event in trace.root.events if event.name == "permit rejected")
    assert rejected.attributes == {"kubeloop.rejected_pods": 2, "kubeloop.message": "rejected due to timeout"}


@pytest.mark.parametrize(
    ("rules", "sampled_by"),
    [
        ("", []),
        ("failed", ["failed"]),
        ("slower-than=10ms", ["slower-than=0.01s"]),
        ("slower-than=10s", []),
        ("preempted", ["preempted"]),
    ],
)
async def test_tail_rules_select_groups_that_are_not_sampled(
    rules, sampled_by, make_tracing, pod, manual_clock, exporter
):
    environ = {"OTEL_TRACES_SAMPLER": "always_off"}
    tracing = make_tracing(manual_clock, exporter, environ=environ, tail_rules=parse_tail_rules(rules))
    group = TracedGroup(tracing, pod, manual_clock)
    tracing.groups.group_observed(pod_group())
    group.observe(0, 1)
    group.attempt("preempting", pods=2, victims=1, message="waiting for preemption")
    manual_clock.pass_ms(50)
    group.attempt("scheduled", pods=2, scheduled_pods=2)
    group.bind(0, 1)
    traces = await group.finished(exporter)
    assert [trace.root.attributes["kubeloop.sampled_by"] for trace in traces] == sampled_by


async def test_pod_that_a_tail_rule_selects_selects_its_group(make_tracing, pod, manual_clock, exporter):
    environ = {"OTEL_TRACES_SAMPLER": "always_off"}
    tracing = make_tracing(manual_clock, exporter, environ=environ, tail_rules=parse_tail_rules("failed"))
    group = TracedGroup(tracing, pod, manual_clock)
    tracing.groups.group_observed(pod_group(min_count=1))
    group.observe(0, 1)
    group.delete(1)
    group.bind(0)
    (trace,) = await group.finished(exporter)
    assert trace.root.attributes["kubeloop.sampled_by"] == "failed"


def test_most_open_records_are_limited(tracing, pod, manual_clock, monkeypatch):
    monkeypatch.setattr(pod_group_recorder, "MAX_OPEN", 2)
    evicted = []
    groups = PodGroupRecorder(clock=manual_clock, rng=random.Random(1), pods=tracing.pods, on_evicted=evicted.append)
    for name in ("a", "b", "c"):
        groups.group_observed(pod_group(name, uid=name))
        groups.pod_observed(pod(f"{name}-0", group=name))
    groups.check()
    assert [record.name for record in groups.open_records()] == ["b", "c"]
    assert [record.name for record in evicted] == ["a"]


async def test_new_leader_does_not_show_what_it_has_not_seen(make_tracing, pod, manual_clock, exporter):
    tracing = make_tracing(manual_clock, exporter)
    tracing.is_leader = False
    group = TracedGroup(tracing, pod, manual_clock)
    tracing.groups.group_observed(pod_group())
    group.observe(0, 1)
    manual_clock.pass_ms(100)
    tracing.start_leading()
    group.attempt("scheduled", pods=2, scheduled_pods=2)
    group.bind(0, 1)
    (trace,) = await group.finished(exporter)
    assert [name for name, *_ in spans_ms(trace)] == ["not followed", "group attempt", "group binding"]


async def test_standby_exports_no_group(make_tracing, pod, manual_clock, exporter):
    tracing = make_tracing(manual_clock, exporter)
    tracing.is_leader = False
    group = TracedGroup(tracing, pod, manual_clock)
    tracing.groups.group_observed(pod_group(min_count=1))
    group.observe(0)
    group.bind(0)
    assert await group.finished(exporter) == []


def test_groups_without_pods_and_podgroup_are_forgotten(tracing, group):
    group.observe(0)
    group.delete(0)
    tracing.groups.group_observed(pod_group())
    tracing.groups.group_deleted(pod_group())
    assert tracing.groups._groups == {}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["observe", "bind", "delete", "finish", "group", "no group", "attempt", "permit", "wait", "lead"]
        ),
        st.integers(0, 3),
    ),
    max_size=40,
)


@given(steps=STEPS, min_count=st.integers(0, 3))
def test_any_sequence_of_events_gives_valid_traces(steps, min_count, make_tracing, make_clock, make_exporter, pod):
    async def run():
        clock, exporter = make_clock(), make_exporter()
        tracing = make_tracing(clock, exporter)
        group = TracedGroup(tracing, pod, clock)
        bound = set()
        for step, number in steps:
            clock.pass_ms(1)
            match step:
                case "observe" if number not in bound:
                    group.observe(number)
                case "bind":
                    group.observe(number, node="n1")
                    bound.add(number)
                case "delete":
                    group.delete(number)
                    bound.discard(number)
                case "finish":
                    group.observe(number, node="n1", phase="Succeeded")
                case "group":
                    tracing.groups.group_observed(pod_group(min_count=min_count, uid=f"uid-{number}"))
                case "no group":
                    tracing.groups.group_deleted(pod_group())
                case "attempt":
                    group.attempt(["scheduled", "unschedulable", "preempting", "error"][number], pods=1)
                case "permit":
                    tracing.groups.permit_started(group.pod(number))
                    tracing.groups.permit_finished(group.pod(number), "timeout" if number else None)
                case "wait":
                    clock.pass_ms(2_000)
                    await tracing.flush()
                case "lead":
                    tracing.start_leading()
            tracing.groups.check()
            for record in tracing.groups.open_records():
                check_spans(pod_group_trace(record, now_ns=clock.ns))
        tracing.groups.group_deleted(pod_group())
        for trace in await group.finished(exporter):
            assert trace.root.attributes["kubeloop.pod_group.outcome"] in ("bound", "deleted")
        assert [*tracing.groups.open_records()] == []

    asyncio.run(run())
