"""Recorder of reconciles: actions, causes and links."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from kubeloop.kube.client.current_span import log_traceparent
from kubeloop.tracing.recording.reconcile_recorder import MAX_ACTIONS, MAX_CAUSES, MAX_LINKS, ReconcileRecorder
from kubeloop.tracing.spans.trace import Link


@pytest.mark.parametrize(
    ("controller", "attribute"),
    [
        ("deployment", "k8s.deployment.name"),
        ("replicationmanager", "k8s.replicationcontroller.name"),
        ("namespace", "k8s.namespace.name"),
    ],
)
async def test_object_name_has_opentelemetry_attribute(tracing, exporter, controller, attribute):
    tracing.reconciles.reconcile(controller, "web").finish(changed=True)
    await tracing.flush()
    assert exporter.traces[0].root.attributes[attribute] == "web"


async def test_changed_reconcile_is_exported_with_actions_and_links(tracing, manual_clock, exporter):
    quiet = tracing.reconciles.reconcile("replicaset", "shop/idle", "resync")
    quiet.finish(changed=False)
    reconcile = tracing.reconciles.reconcile("replicaset", "shop/web-5f", "Deployment changed")
    link = f"00-{'1' * 32}-{'2' * 16}-01"
    start_ns = reconcile_start = manual_clock.ns
    manual_clock.pass_ms(4)
    reconcile.add_action("create pod web-5f-a", start_ns=start_ns, link=link)
    reconcile.add_action("scale")
    manual_clock.pass_ms(1)
    reconcile.finish(changed=True)
    await tracing.flush()
    (trace,) = exporter.traces
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


async def test_failed_reconcile_is_exported_as_error(tracing, exporter):
    tracing.reconciles.reconcile("deployment", "shop/web").finish(changed=False, error="409")
    await tracing.flush()
    assert exporter.traces[0].root.error == "409"


async def test_context_manager_finishes_a_reconcile_unless_it_is_cancelled(tracing, exporter):
    errors = {"shop/done": None, "shop/failed": ValueError("409"), "shop/cancelled": asyncio.CancelledError()}
    for key, error in errors.items():
        with suppress(ValueError, asyncio.CancelledError), tracing.reconciles.reconcile("job", key) as reconcile:
            reconcile.add_action("create pod")
            if error is not None:
                raise error
        assert log_traceparent() == ""
    await tracing.flush()
    traces = [(trace.root.attributes["kubeloop.key"], trace.root.error) for trace in exporter.traces]
    assert traces == [("shop/done", None), ("shop/failed", "409")]


def test_reconcile_that_logged_has_trace(tracing):
    reconcile = tracing.reconciles.reconcile("deployment", "shop/web")
    traceparent = log_traceparent()
    reconcile.finish(changed=False)
    (document,) = tracing.recent.reconciles()
    assert document["traceId"] == traceparent.split("-")[1]


def test_reconciles_link_to_reconcile_that_wrote_object(tracing):
    first = tracing.reconciles.reconcile("deployment", "shop/web")
    first.will_trigger("replicaset", "shop/web-5f")
    first.finish(changed=True)
    second = tracing.reconciles.reconcile("replicaset", "shop/web-5f")
    second.finish(changed=True)
    third = tracing.reconciles.reconcile("replicaset", "shop/web-5f")
    third.finish(changed=True)
    tracing.reconciles.forget("replicaset", "shop/web-5f")
    tracing.reconciles.reconcile("replicaset", "shop/web-5f").finish(changed=True)
    links = [document["spans"][0]["links"] for document in tracing.recent.reconciles()]
    cause = {"traceId": first.traceparent.split("-")[1], "spanId": first.traceparent.split("-")[2]}
    link = {**cause, "attributes": {"kubeloop.link": "cause"}}
    assert links == [[], [link], [link], []], "the last: the object was deleted, another one has its name"


def test_written_objects_are_limited(manual_clock):
    recorder = ReconcileRecorder(clock=manual_clock, rng=random.Random(1))
    for number in range(MAX_CAUSES + 5):
        recorder.reconcile("deployment", "shop/web").will_trigger("replicaset", f"shop/web-{number}")
    for number in range(MAX_CAUSES + 5):
        recorder.reconcile("replicaset", f"shop/web-{number}").finish(changed=True)
    assert len(recorder._handled_causes) == MAX_CAUSES


def test_actions_and_links_are_limited(manual_clock):
    records = []
    recorder = ReconcileRecorder(
        clock=manual_clock, rng=random.Random(1), on_finished=lambda record, _: records.append(record)
    )
    reconcile = recorder.reconcile("replicaset", "shop/web")
    for number in range(MAX_ACTIONS + 50):
        reconcile.add_action(f"create pod web-{number}", link=f"00-{number + 1:032x}-{1:016x}-01")
    reconcile.finish()
    (record,) = records
    assert (record.action_count, len(record.actions), len(record.links)) == (150, MAX_ACTIONS, MAX_LINKS)
