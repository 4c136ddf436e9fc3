"""Recorder of pods: which pods are followed, and when their traces start and end."""

from __future__ import annotations

import random

import pytest

from kubeloop.kube.client.current_span import current_span, log_traceparent, request_traceparent
from kubeloop.tracing.recording import open_pod_records
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.pod_recorder import AttemptFacts, PodCreateRequest, PodScope, standalone_pod_recorder
from kubeloop.tracing.sampling.samplers import DISABLED_SAMPLER
from kubeloop.tracing.spans.trace import Link
from support.traces.pod_traces import MS, attempt, bind, finished, request_pod


async def test_deleted_pending_pod_ends_trace_with_error(tracing, pod, manual_clock, exporter):
    web, _ = request_pod(tracing, pod, manual_clock)
    tracing.pods.queued(web, "unschedulable", "no room")
    manual_clock.pass_ms(10)
    tracing.pods.deleted(web)
    tracing.pods.deleted(web)
    trace = await finished(tracing, exporter)
    assert trace.root.error == "deleted before it was bound"
    assert trace.root.attributes["kubeloop.outcome"] == "deleted"
    waits = {span.name: span for span in trace.spans}
    assert waits["queue unschedulable"].end_ns == trace.root.end_ns


async def test_watch_event_may_come_before_create_response(tracing, pod, manual_clock, exporter):
    traces, clock = tracing.pods, manual_clock
    traceparent = traces.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f").traceparent
    clock.pass_ms(1)
    web = pod(traceparent=traceparent)
    traces.observed(web)
    clock.pass_ms(1)
    traces.created(traceparent, web)
    clock.pass_ms(1)
    traces.observed(pod(traceparent=traceparent, node="n1"))
    trace = await finished(tracing, exporter)
    start_ns = trace.root.start_ns
    times = {span.name: ((span.start_ns - start_ns) / MS, (span.end_ns - start_ns) / MS) for span in trace.spans[1:]}
    assert times == {"create": (0, 2), "watch delivery": (1, 1), "event loop": (2, 3)}


async def test_watch_event_may_come_before_bind_response(tracing, pod, manual_clock, exporter):
    web, traceparent = request_pod(tracing, pod, manual_clock)
    tracing.pods.bind_started(web, "n1")
    manual_clock.pass_ms(1)
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    await tracing.flush()
    assert exporter.traces == []
    manual_clock.pass_ms(1)
    tracing.pods.bind_finished(web)
    trace = await finished(tracing, exporter)
    assert {"bind", "confirmation"} <= {span.name for span in trace.spans}


async def test_trace_continues_with_same_ids_after_restart(make_tracing, pod, manual_clock, exporter):
    before = make_tracing(manual_clock, seed=1)
    web, traceparent = request_pod(before, pod, manual_clock)
    after = make_tracing(manual_clock, exporter, seed=2)
    manual_clock.pass_ms(5000)
    after.pods.observed(web)
    assert after.open_pods.get(web.metadata.uid).traceparent == traceparent
    after.pods.queued(web, "active", "PodAdd")
    attempt(after, web, manual_clock, 1, AttemptFacts("scheduled", nodes=1, feasible=1, node="n1"))
    bind(after, web, manual_clock, "n1")
    after.pods.observed(pod(traceparent=traceparent, node="n1"))
    trace = await finished(after, exporter)
    assert (trace.trace_id, trace.root.span_id) == (traceparent[3:35], traceparent[36:52])
    assert trace.root.start_ns == manual_clock.ns - round(5008 * MS), "the start time is in the trace ID"
    before_us = next(span for span in trace.spans if span.name == "not followed")
    assert (before_us.end_ns - before_us.start_ns) / MS == pytest.approx(5003)
    assert trace.root.attributes["kubeloop.continued"] is True
    assert after.trace_id(web) == traceparent[3:35]


async def test_pod_of_another_creator_gets_its_own_trace(tracing, pod, manual_clock, exporter):
    bare = pod("bare", owner="")
    tracing.pods.observed(bare)
    traceparent = tracing.open_pods.get(bare.metadata.uid).traceparent
    assert traceparent.endswith("-01")
    tracing.pods.observed(pod("bare", owner="", node="n1"))
    trace = await finished(tracing, exporter)
    assert trace.trace_id == traceparent[3:35]
    assert trace.root.parent_span_id == ""
    assert "kubeloop.continued" not in trace.root.attributes
    assert tracing.trace_id(pod("bare", owner="", node="n1")) == trace.trace_id


async def test_span_of_creator_is_parent_of_pod_span(tracing, pod, manual_clock, exporter):
    other_traceparent = "00-11111111111111111111111111111111-2222222222222222-01"
    tracing.pods.observed(pod("bare", owner="", traceparent=other_traceparent))
    tracing.pods.observed(pod("bare", owner="", traceparent=other_traceparent, node="n1"))
    trace = await finished(tracing, exporter)
    assert trace.trace_id == "1" * 32
    assert trace.root.parent_span_id == "2" * 16
    assert trace.root.span_id != "2" * 16


async def test_unsampled_pod_has_no_trace(make_tracing, pod, manual_clock, exporter):
    tracing = make_tracing(manual_clock, exporter, environ={"OTEL_TRACES_SAMPLER": "always_off"})
    web, traceparent = request_pod(tracing, pod, manual_clock)
    assert traceparent == ""
    assert web.metadata.annotations == {}
    tracing.pods.queued(web, "active", "")
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    tracing.pods.observed(pod("bare", owner=""))
    await tracing.flush()
    assert exporter.traces == []
    assert [*tracing.open_pods.all()] == []


async def test_pods_first_observed_bound_or_ended_are_ignored(tracing, pod):
    tracing.pods.observed(pod("a", node="n1"))
    tracing.pods.observed(pod("b", phase="Succeeded"))
    assert [*tracing.open_pods.all()] == []


async def test_lost_create_response_is_resolved_by_watch_event(tracing, pod, manual_clock, exporter):
    traces = tracing.pods
    traceparent = traces.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f").traceparent
    traces.create_failed(traceparent, "connection lost")
    traces.observed(pod(traceparent=traceparent))
    manual_clock.pass_ms(20_000)
    await tracing.flush()
    traces.observed(pod(traceparent=traceparent, node="n1"))
    trace = await finished(tracing, exporter)
    assert trace.root.error is None
    assert trace.spans[1].error == "connection lost"


def test_disabled_recorder_accepts_every_call(pod, manual_clock):
    records = open_pod_records.OpenPodRecords(clock=manual_clock)
    recorder = standalone_pod_recorder(
        OpenPodRecords(clock=manual_clock), rng=random.Random(1), sampler=DISABLED_SAMPLER
    )
    web = pod()
    request = recorder.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="x")
    assert request == PodCreateRequest()
    recorder.created("", web)
    recorder.create_failed("", "no")
    recorder.observed(web)
    recorder.attempt_started(web, 1)
    recorder.attempt_finished(web, AttemptFacts("scheduled"))
    recorder.bind_started(web, "n")
    recorder.bind_finished(web)
    recorder.deleted(web)
    assert current_span.get() is None
    assert [*records.all()] == []


async def test_template_traceparent_is_parent_of_pod_spans(tracing, pod, manual_clock, exporter):
    other_traceparent = "00-11111111111111111111111111111111-2222222222222222-01"
    request = tracing.pods.create_requested(
        namespace="shop", owner_kind="ReplicaSet", owner_name="x", inherited=other_traceparent
    )
    traceparent, annotations = request.traceparent, request.annotations
    assert annotations["tracing.k8s.io/traceparent"] == traceparent
    web = pod(annotations=annotations)
    tracing.pods.created(traceparent, web)
    tracing.pods.observed(pod(annotations=annotations, node="n1"))
    trace = await finished(tracing, exporter)
    assert (trace.trace_id, trace.root.parent_span_id) == ("1" * 32, "2" * 16)


async def test_restart_restores_parent_and_reconcile_link(make_tracing, pod, manual_clock, exporter):
    other_traceparent = "00-11111111111111111111111111111111-2222222222222222-01"
    link = "00-33333333333333333333333333333333-4444444444444444-01"
    before = make_tracing(manual_clock)
    annotations = before.pods.create_requested(
        namespace="shop", owner_kind="ReplicaSet", owner_name="x", link=link, inherited=other_traceparent
    ).annotations
    after = make_tracing(manual_clock, exporter, seed=2)
    after.pods.observed(pod(annotations=annotations))
    after.pods.observed(pod(annotations=annotations, node="n1"))
    trace = await finished(after, exporter)
    assert (trace.trace_id, trace.root.parent_span_id) == ("1" * 32, "2" * 16)
    assert trace.root.links == (Link(link, "reconcile"),)


async def test_annotated_link_of_a_pod_is_restored(make_tracing, pod, manual_clock, exporter):
    link = "00-33333333333333333333333333333333-4444444444444444-01"
    how = {"namespace": "shop", "owner_kind": "ReplicaSet", "owner_name": "x", "link": link}
    annotations = make_tracing(manual_clock, annotates=True).pods.create_requested(**how).annotations
    assert set(make_tracing(manual_clock).pods.create_requested(**how).annotations) == {"tracing.k8s.io/traceparent"}
    after = make_tracing(manual_clock, exporter, seed=2)
    after.pods.observed(pod(annotations=annotations))
    after.pods.observed(pod(annotations=annotations, node="n1"))
    assert (await finished(after, exporter)).root.links == (Link(link, "reconcile"),)


async def test_pods_outside_of_scope_are_ignored(make_tracing, manual_clock, pod):
    tracing = make_tracing(manual_clock, scope=PodScope(frozenset({"mine"}), creators=frozenset()))
    tracing.pods.observed(pod("other_traceparent"))
    tracing.pods.observed(pod("ours", scheduler="mine"))
    assert [record.name for record in tracing.open_pods.all()] == ["ours"]


async def test_creator_ends_trace_and_other_scheduler_adds_child(make_tracing, pod, manual_clock, make_exporter):
    creating, scheduling = make_exporter(), make_exporter()
    creates, schedules = PodScope(frozenset(), frozenset({"ReplicaSet"})), PodScope(None, frozenset())
    creator = make_tracing(manual_clock, creating, seed=1, scope=creates)
    scheduler = make_tracing(manual_clock, scheduling, seed=2, scope=schedules)
    request = creator.pods.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f")
    traceparent, annotations = request.traceparent, request.annotations
    web = pod(annotations=annotations)
    creator.pods.created(traceparent, web)
    for tracing in (creator, scheduler):
        tracing.pods.observed(web)
    manual_clock.pass_ms(50)
    for tracing in (creator, scheduler):
        tracing.pods.observed(pod(annotations=annotations, node="n1"))
    complete, child = await finished(creator, creating), await finished(scheduler, scheduling)
    assert complete.root.span_id == traceparent[36:52]
    assert "other scheduler" in {span.name for span in complete.spans}
    assert (child.trace_id, child.root.parent_span_id) == (complete.trace_id, complete.root.span_id)
    assert not {span.span_id for span in complete.spans} & {span.span_id for span in child.spans}


async def test_standby_exports_nothing_until_it_leads(tracing, pod, manual_clock, exporter):
    tracing.is_leader = False
    tracing.pods.observed(pod("done"))
    waiting = pod("waiting")
    tracing.pods.observed(waiting)
    tracing.pods.queued(waiting, "active", "PodAdd")
    tracing.pods.observed(pod("done", node="n1"))
    manual_clock.pass_ms(100)
    await tracing.flush()
    assert exporter.traces == []
    tracing.start_leading()
    manual_clock.pass_ms(10)
    attempt(tracing, waiting, manual_clock, 1, AttemptFacts("scheduled", node="n1"))
    tracing.pods.observed(pod("waiting", node="n1"))
    trace = await finished(tracing, exporter)
    lengths = {span.name: (span.end_ns - span.start_ns) / MS for span in trace.spans}
    assert lengths["not followed"] == 100
    assert lengths["queue active"] == 10


async def test_parentbased_sampler_follows_sampled_parent(make_tracing, pod, manual_clock, exporter):
    tracing = make_tracing(manual_clock, exporter, environ={"OTEL_TRACES_SAMPLER": "parentbased_always_off"})
    other_traceparent = "00-11111111111111111111111111111111-2222222222222222-01"
    tracing.pods.observed(pod("a", owner="", traceparent=other_traceparent))
    tracing.pods.observed(pod("b", owner=""))
    assert [record.name for record in tracing.open_pods.all()] == ["a"]


def test_current_span_is_set_during_work_on_pod_and_reconcile(tracing, pod, manual_clock):
    web, traceparent = request_pod(tracing, pod, manual_clock)
    assert request_traceparent() == ""
    tracing.pods.attempt_started(web, 1)
    assert log_traceparent() == request_traceparent() == traceparent
    tracing.pods.attempt_finished(web, AttemptFacts("scheduled"))
    assert log_traceparent() == ""
    reconcile = tracing.reconciles.reconcile("deployment", "shop/web")
    assert request_traceparent() == reconcile.traceparent
    reconcile.finish(changed=False)
    assert request_traceparent() == ""
    assert tracing.recent.reconciles() == []


def test_current_span_of_unrecorded_pod_is_its_annotation(make_tracing, pod, manual_clock):
    tracing = make_tracing(manual_clock, environ={"OTEL_TRACES_SAMPLER": "always_off"})
    other_traceparent = "00-11111111111111111111111111111111-2222222222222222-00"
    tracing.pods.bind_started(pod(traceparent=other_traceparent), "n1")
    assert request_traceparent() == other_traceparent
    assert log_traceparent() == "", "nothing is recorded for it"
    tracing.pods.bind_started(pod("invalid", traceparent="00-1\r\nx: y"), "n1")
    assert request_traceparent() == ""
    assert tracing.open_pods.count() == 0
