"""Memory, views, reconcile traces and export of one process' tracing."""

from __future__ import annotations

import asyncio
import io
import json
import random

import msgspec
import pytest
from rich.console import Console

from kubeloop.kube.objects import api_types
from kubeloop.tracing.provider import Tracing, exports_otlp
from kubeloop.tracing.recording.pod_recorder import AttemptFacts
from kubeloop.tracing.spans.trace import Link
from kubeloop.tracing.views.waterfall import waterfall


def trace_pod(tracing, pod, clock, name, milliseconds, node="n1"):
    traces = tracing.pods
    traceparent = traces.new_traceparent()
    traces.create_requested(
        traceparent, namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f", start_ns=clock.ns
    )
    created = pod(name, traceparent=traceparent)
    traces.created(traceparent, created, clock.ns)
    traces.observed(created)
    traces.queued(created, "active", "PodAdd")
    traces.attempt_started(created, 1)
    span = (clock.ns, clock.ns)
    facts = AttemptFacts(
        "unschedulable",
        nodes=3,
        rejections={"NodeAffinity": 3},
        filter_ns=span,
        score_ns=span,
        scores=[("n1", 100)],
        message="0/3 nodes are available",
    )
    traces.attempt_finished(created, facts)
    clock.pass_ms(milliseconds)
    bound = pod(name, traceparent=traceparent, node=node)
    if node:
        traces.observed(bound)
    return bound


def test_memory_finds_traces_by_pod_by_deployment_and_the_slowest(tracing, pod, hand_clock):
    trace_pod(tracing, pod, hand_clock, "web-5f-a", 10)
    slow = trace_pod(tracing, pod, hand_clock, "web-5f-b", 500)
    memory = tracing.recent
    assert memory.find_pod_trace("shop", "web-5f-a")["spans"][0]["attributes"]["k8s.pod.name"] == "web-5f-a"
    assert memory.find_pod_trace("shop", "nobody") is None
    assert memory.find_pod_trace("other", "web-5f-a") is None
    trace_id = tracing.trace_id(slow)
    assert memory.slowest_of_deployment("shop", "web")["traceId"] == trace_id
    assert memory.slowest_of_deployment("shop", "api") is None
    assert memory.slowest_of_owner("shop", "ReplicaSet", "web-5f")["traceId"] == trace_id
    assert memory.slowest("shop")["traceId"] == memory.slowest()["traceId"] == tracing.slowest()["traceId"] == trace_id
    assert memory.slowest("other") is None
    assert memory.find_trace(trace_id)["traceId"] == trace_id
    assert tracing.created_to_bound_seconds(slow) == pytest.approx(0.5)


def test_a_pod_still_on_its_way_is_shown_up_to_now(tracing, pod, hand_clock):
    trace_pod(tracing, pod, hand_clock, "web-5f-a", 10, node="")
    document = tracing.recent.find_pod_trace("shop", "web-5f-a")
    root = document["spans"][0]
    assert root["end"] == hand_clock.ns
    assert root["attributes"]["kubeloop.outcome"] == "open"
    assert root["status"] == {"code": "OK"}


def test_memory_is_bounded_and_keeps_the_newest(make_tracing, pod, hand_clock):
    tracing = make_tracing(hand_clock, max_recent_pods=3)
    for number in range(10):
        trace_pod(tracing, pod, hand_clock, f"p{number}", 1)
    assert len(tracing.recent) == 3
    assert tracing.recent.find_pod_trace("shop", "p6") is None
    assert tracing.recent.find_pod_trace("shop", "p7") is not None


def test_a_pod_bound_before_this_process_is_told_from_its_object(tracing, pod):
    bound = pod(traceparent=f"00-{'1' * 32}-{'2' * 16}-01", node="n1")
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T12:00:03Z"}]
    bound = msgspec.structs.replace(bound, status=api_types.convert(api_types.PodStatus, {"conditions": conditions}))
    assert tracing.trace_id(bound) == "1" * 32
    assert tracing.created_to_bound_seconds(bound) == 3.0
    document = tracing.reconstructed(bound)
    assert document["traceId"] == "1" * 32
    assert document["spans"][0]["end"] - document["spans"][0]["start"] == 3 * 10**9
    assert tracing.reconstructed(pod()) is None
    assert tracing.created_to_bound_seconds(pod()) is None
    assert tracing.trace_id(pod()) == ""


def test_the_document_is_json_with_the_fields_that_are_promised(tracing, pod, hand_clock):
    trace_pod(tracing, pod, hand_clock, "a", 1)
    document = json.loads(json.dumps(tracing.slowest()))
    assert set(document) == {"traceId", "spans"}
    fields = {"name", "spanId", "parentSpanId", "start", "end", "kind", "attributes", "links", "status"}
    assert all(set(span) - {"events"} == fields for span in document["spans"])
    failed = next(span for span in document["spans"] if span["name"] == "scheduling attempt")
    assert failed["status"] == {"code": "ERROR", "message": "0/3 nodes are available"}


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_waterfall_shows_every_span_with_its_time_and_what_was_decided(tracing, pod, hand_clock, width):
    trace_pod(tracing, pod, hand_clock, "a", 1500)
    console = Console(file=io.StringIO(), width=width)
    console.print(waterfall(tracing.slowest()))
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
    assert "█" in text
    assert max(map(len, text.splitlines())) <= width


def test_the_waterfall_of_nothing_says_so():
    console = Console(file=io.StringIO(), width=80)
    console.print(waterfall({"traceId": "abc", "spans": []}))
    assert "no spans" in console.file.getvalue()


@pytest.mark.parametrize(
    ("controller", "attribute"),
    [
        ("deployment", "k8s.deployment.name"),
        ("replicationmanager", "k8s.replicationcontroller.name"),
        ("namespace", "k8s.namespace.name"),
    ],
)
async def test_a_reconcile_names_its_object_in_opentelemetrys_words(tracing, exported, controller, attribute):
    tracing.reconciles.reconcile(controller, "web").finish(changed=True)
    await tracing.flush()
    assert exported.traces[0].root.attributes[attribute] == "web"


async def test_a_reconcile_that_changed_something_is_exported_with_its_actions_and_links(tracing, hand_clock, exported):
    quiet = tracing.reconciles.reconcile("replicaset", "shop/idle", "resync")
    quiet.finish(changed=False)
    reconcile = tracing.reconciles.reconcile("replicaset", "shop/web-5f", "Deployment changed")
    link = f"00-{'1' * 32}-{'2' * 16}-01"
    start_ns = reconcile_start = hand_clock.ns
    hand_clock.pass_ms(4)
    reconcile.add_action("create pod web-5f-a", start_ns=start_ns, link=link)
    reconcile.add_action("scale")
    hand_clock.pass_ms(1)
    reconcile.finish(changed=True)
    await tracing.flush()
    (trace,) = exported.traces
    root, child = trace.spans
    assert f"00-{trace.trace_id}-{root.span_id}-01" == reconcile.traceparent
    assert root.name == "reconcile replicaset"
    assert root.attributes == {
        "kubeloop.controller": "replicaset",
        "kubeloop.key": "shop/web-5f",
        "k8s.namespace.name": "shop",
        "k8s.replicaset.name": "web-5f",
        "kubeloop.reason": "Deployment changed",
        "kubeloop.actions": ["create pod web-5f-a", "scale"],
        "kubeloop.action_count": 2,
    }
    assert root.links == (Link(link, "cause"),)
    assert (child.name, child.start_ns, child.end_ns - child.start_ns) == (
        "create pod",
        reconcile_start,
        4_000_000,
    )
    assert child.attributes == {"kubeloop.action": "create pod web-5f-a"}
    assert tracing.recent.reconciles("shop/web-5f")[0]["traceId"] == trace.trace_id
    assert tracing.recent.reconciles("shop/idle") == []


async def test_a_reconcile_that_failed_is_exported_as_an_error(tracing, exported):
    tracing.reconciles.reconcile("deployment", "shop/web").finish(changed=False, error="409")
    await tracing.flush()
    assert exported.traces[0].root.error == "409"


@pytest.mark.virtual_time
async def test_run_exports_in_the_background_and_the_rest_at_the_end(tracing, pod, hand_clock, exported):
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(tracing.run())
        trace_pod(tracing, pod, hand_clock, "a", 1)
        await asyncio.sleep(1.5)
        assert len(exported.traces) == 1
        trace_pod(tracing, pod, hand_clock, "b", 1)
        task.cancel()
    assert len(exported.traces) == 2
    assert exported.shut


def test_the_same_seed_gives_the_same_ids(hand_clock):
    def ids(seed):
        tracing = Tracing(clock=hand_clock, rng=random.Random(seed), environ={})
        return [tracing.pods.new_traceparent() for _ in range(5)]

    assert ids(1) == ids(1) != ids(2)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_spans_are_exported_where_an_endpoint_is_named(environ, wanted):
    assert exports_otlp(environ) is wanted


def test_the_exporter_is_the_one_that_the_variable_names(hand_clock, pod, capsys, caplog):
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}

    def made(**environ):
        return Tracing(clock=hand_clock, rng=random.Random(1), environ=environ)

    assert not made(**endpoint, OTEL_TRACES_EXPORTER="none").exports
    assert made(**endpoint, OTEL_TRACES_EXPORTER="otlp").exports
    assert caplog.records == []
    assert not made(**endpoint, OTEL_TRACES_EXPORTER="zipkin").exports
    assert "zipkin" in caplog.text
    console = made(OTEL_TRACES_EXPORTER="console")
    console.reconciles.reconcile("replicaset", "shop/web").finish(changed=True)
    console._export(1)
    assert '"name": "reconcile replicaset"' in capsys.readouterr().out
