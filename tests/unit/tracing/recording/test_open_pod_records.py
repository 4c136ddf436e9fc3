"""Open records of pods: their limits, timeouts and copies in the journal."""

from __future__ import annotations

import random

from kubeloop.tracing.recording import open_pod_records
from kubeloop.tracing.recording.pod_recorder import AttemptFacts, standalone_pod_recorder
from support.traces.pod_traces import MS, attempt, finished, request_pod


async def test_failed_create_ends_trace_after_delay(tracing, pod, manual_clock, exporter):
    traces = tracing.pods
    traceparent = traces.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f").traceparent
    manual_clock.pass_ms(1)
    traces.create_failed(traceparent, "403 quota")
    await tracing.flush()
    assert exporter.traces == []
    manual_clock.pass_ms(11_000)
    trace = await finished(tracing, exporter)
    assert [span.name for span in trace.spans] == ["pod", "create"]
    assert trace.root.error == "403 quota"
    assert [*tracing.open_pods.all()] == []


async def test_number_of_open_records_is_bounded(tracing, pod, exporter, caplog, monkeypatch):
    monkeypatch.setattr(open_pod_records, "MAX_OPEN", 10)
    for number in range(25):
        tracing.pods.observed(pod(f"p{number}"))
    assert len([*tracing.open_pods.all()]) == 10
    await tracing.flush()
    assert exporter.traces == [], "an evicted pod gets its trace when it is observed again"
    (log_record,) = caplog.records
    assert "too many pending pods" in log_record.getMessage()


async def test_number_of_requested_pods_is_bounded(tracing, monkeypatch):
    monkeypatch.setattr(open_pod_records, "MAX_OPEN", 10)
    for _ in range(25):
        tracing.pods.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f")
    assert tracing.open_pods.count() == 10


def test_total_number_of_facts_is_bounded(make_tracing, pod, manual_clock, monkeypatch):
    monkeypatch.setattr(open_pod_records, "MAX_TOTAL_FACTS", 1_000)
    tracing = make_tracing(manual_clock)
    pods = [pod(f"p{number}") for number in range(20)]
    for web in pods:
        tracing.pods.observed(web)
    tracing.open_pods.sweep()
    for number in range(100):
        for web in pods:
            attempt(tracing, web, manual_clock, number, AttemptFacts("unschedulable"))
    assert sum(len(record.facts) for record in tracing.open_pods.all()) <= 1_000


def test_changed_records_are_saved_in_slices(pod, manual_clock, monkeypatch):
    class Saved:
        def __init__(self):
            self.names = []

        def save(self, record):
            record.is_journaled, record.journaled_facts = True, len(record.facts)
            self.names.append(record.name)

        def delete(self, record):
            self.names.append(f"not {record.name}")

    monkeypatch.setattr(open_pod_records, "MAX_SAVED_PER_SWEEP", 3)
    saved = Saved()
    records = open_pod_records.OpenPodRecords(clock=manual_clock, store=saved)
    traces = standalone_pod_recorder(records, rng=random.Random(1))
    pods = [pod(f"p{number}") for number in range(5)]
    for web in pods:
        traces.observed(web)
    for expected in (3, 5, 5):
        records.sweep()
        assert len(saved.names) == expected
    manual_clock.pass_ms(1)
    traces.queued(pods[4], "active", "x")
    records.sweep()
    records.sweep()
    assert saved.names == ["p0", "p1", "p2", "p3", "p4", "p4"]


async def test_new_leader_keeps_what_it_knows_of_bound_and_requested_pods(make_tracing, pod, manual_clock, exporter):
    tracing = make_tracing(manual_clock, exporter, until_ready=True)
    web, traceparent = request_pod(tracing, pod, manual_clock)
    tracing.pods.queued(web, "active", "PodAdd")
    manual_clock.pass_ms(5)
    attempt(tracing, web, manual_clock, 1, AttemptFacts("scheduled", node="n1"))
    tracing.pods.observed(pod(web.metadata.name, traceparent=traceparent, node="n1"))
    requested = tracing.pods.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f")
    tracing.start_leading()
    manual_clock.pass_ms(5)
    tracing.pods.observed(pod("other", traceparent=requested.traceparent))
    tracing.pods.deleted(pod("other", traceparent=requested.traceparent))
    tracing.pods.deleted(pod(web.metadata.name, traceparent=traceparent, node="n1"))
    await tracing.flush()
    names = {trace.root.attributes["k8s.pod.name"]: [span.name for span in trace.spans] for trace in exporter.traces}
    assert "queue active" in names[web.metadata.name]
    assert all("not followed" not in spans for spans in names.values())


async def test_missing_bind_response_ends_trace_after_timeout(tracing, pod, manual_clock, exporter):
    web, traceparent = request_pod(tracing, pod, manual_clock)
    tracing.pods.bind_started(web, "n1")
    tracing.pods.observed(pod(traceparent=traceparent, node="n1"))
    manual_clock.pass_ms(61_000)
    trace = await finished(tracing, exporter)
    assert trace.root.attributes["kubeloop.outcome"] == "bound"
    assert (trace.root.end_ns - trace.root.start_ns) / MS < 100
