"""Recent traces in memory."""

from __future__ import annotations

import pytest

from kubeloop.tracing.recording import recent_traces
from kubeloop.tracing.recording.recent_traces import RecentTraces
from kubeloop.tracing.spans.trace import Span, Trace
from support.traces.pod_traces import trace_pod


def test_traces_are_found_by_pod_owner_and_duration(tracing, pod, manual_clock):
    trace_pod(tracing, pod, manual_clock, "web-5f-a", 10)
    slow = trace_pod(tracing, pod, manual_clock, "web-5f-b", 500)
    memory = tracing.recent
    assert memory.find_pod_trace("shop", "web-5f-a")["spans"][0]["attributes"]["k8s.pod.name"] == "web-5f-a"
    assert memory.find_pod_trace("shop", "nobody") is None
    assert memory.find_pod_trace("other", "web-5f-a") is None
    trace_id = tracing.trace_id(slow)
    assert memory.slowest("shop", "deployment/web")["traceId"] == trace_id
    assert memory.slowest("shop", "replicaset/web-5f")["traceId"] == trace_id
    assert memory.slowest("shop", "deployment/api") is None
    assert memory.slowest("shop")["traceId"] == memory.slowest()["traceId"] == trace_id
    assert memory.slowest("other") is None
    assert memory.find_trace(trace_id)["traceId"] == trace_id
    assert tracing.created_to_bound_seconds(slow) == pytest.approx(0.5)


def test_open_trace_ends_now(tracing, pod, manual_clock):
    trace_pod(tracing, pod, manual_clock, "web-5f-a", 10, node="")
    document = tracing.recent.find_pod_trace("shop", "web-5f-a")
    root = document["spans"][0]
    assert root["end"] == manual_clock.ns
    assert root["attributes"]["kubeloop.outcome"] == "open"
    assert root["status"] == {"code": "OK"}


def test_only_newest_traces_are_stored(make_tracing, pod, manual_clock, monkeypatch):
    monkeypatch.setattr(recent_traces, "MAX_PODS", 3)
    tracing = make_tracing(manual_clock)
    for number in range(10):
        trace_pod(tracing, pod, manual_clock, f"p{number}", 1)
    assert len([*tracing.recent.records()]) == 3
    assert tracing.recent.find_pod_trace("shop", "p6") is None
    assert tracing.recent.find_pod_trace("shop", "p7") is not None
    trace_pod(tracing, pod, manual_clock, "p10", 1)
    tracing.recent.sweep()
    assert [record.name for record in tracing.recent.records()] == ["p8", "p9", "p10"]


def test_reconciles_are_limited_and_found_by_key(manual_clock, monkeypatch):
    monkeypatch.setattr(recent_traces, "MAX_RECONCILES", 2)
    recent = RecentTraces(clock=manual_clock)
    for number in range(3):
        root = Span("reconcile deployment", f"{number + 1:016x}", 0, 1, attributes={"kubeloop.key": f"shop/{number}"})
        recent.add_reconcile(Trace(f"{number + 1:032x}", (root,)))
    assert [document["traceId"] for document in recent.reconciles()] == [f"{2:032x}", f"{3:032x}"]
    assert len(recent.reconciles("shop/2")) == 1
    assert recent.find_linked_trace(f"{1:032x}") is None
