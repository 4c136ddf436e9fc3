"""Tracing of one process: export in the background, exporters, and pods of earlier processes."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from kubeloop.kube.objects import api_types
from kubeloop.kube.user_error import UserError
from kubeloop.tracing.metrics_interface import TracedPod, TraceMetrics
from kubeloop.tracing.provider import LATE_SECONDS, QUIET_SECONDS, SLICE_LIMIT, STANDBY_SECONDS, Tracing
from support.traces.pod_traces import trace_pod


def test_trace_of_earlier_process_is_built_from_object(tracing, pod):
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


@pytest.mark.virtual_time
async def test_run_exports_in_background_and_rest_at_end(tracing, pod, manual_clock, exporter):
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(tracing.run())
        trace_pod(tracing, pod, manual_clock, "a", 1)
        await asyncio.sleep(1.5)
        assert len(exporter.traces) == 1
        trace_pod(tracing, pod, manual_clock, "b", 1)
        task.cancel()
    assert len(exporter.traces) == 2
    assert exporter.is_shut_down


@pytest.mark.virtual_time
@pytest.mark.parametrize(("per_second", "exported"), [(1, 10), (100, 0)])
async def test_burst_of_traces_is_exported_after_its_end(tracing, pod, manual_clock, exporter, per_second, exported):
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(tracing.run())
        for number in range(10 * per_second):
            trace_pod(tracing, pod, manual_clock, f"web-{number}", 1)
            await asyncio.sleep(1 / per_second)
        assert len(exporter.traces) == pytest.approx(exported, abs=2 * SLICE_LIMIT if per_second > 1 else 1)
        await asyncio.sleep(3 * QUIET_SECONDS)
        assert len(exporter.traces) == 10 * per_second
        task.cancel()


@pytest.mark.virtual_time
async def test_traces_that_end_without_pause_are_exported_when_late(tracing, pod, manual_clock, exporter):
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(tracing.run())
        for number in range(4_000):
            trace_pod(tracing, pod, manual_clock, f"web-{number}", 1)
            manual_clock.pass_ms(9)
            await asyncio.sleep(0.01)
        assert len(exporter.traces) > 4_000 - (LATE_SECONDS + 2 * QUIET_SECONDS) * 100
        task.cancel()


class RecordingMetrics(TraceMetrics):
    def __init__(self) -> None:
        self.pods = set()
        self.start_slis = []

    def phases(self, times_ns, pod):
        self.pods.add(pod)

    def start_sli(self, duration_ns, pod):
        self.start_slis.append((duration_ns, pod))


@pytest.mark.virtual_time
async def test_metrics_have_namespace_owner_kind_and_start_sli(manual_clock, pod):
    metrics = RecordingMetrics()
    tracing = Tracing(clock=manual_clock, rng=random.Random(1), environ={}, metrics=metrics)
    trace_pod(tracing, pod, manual_clock, "web-5f-a", 10)
    (record,) = tracing.recent.records()
    record.start_sli_ns = 7
    await tracing.flush()
    traced = TracedPod(record.context.trace_id, "shop", "Deployment")
    assert metrics.pods == {traced}
    assert metrics.start_slis == [(7, traced)]


def test_same_seed_gives_same_ids(manual_clock):
    def ids(seed):
        tracing = Tracing(clock=manual_clock, rng=random.Random(seed), environ={})
        owner = {"namespace": "shop", "owner_kind": "ReplicaSet", "owner_name": "web-5f"}
        return [tracing.pods.create_requested(**owner).traceparent for _ in range(5)]

    assert ids(1) == ids(1) != ids(2)


def test_exporter_is_selected_by_environment(manual_clock, caplog):
    def exports(**environ):
        environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
        return Tracing(clock=manual_clock, rng=random.Random(1), environ=environ).exports

    assert not exports(OTEL_TRACES_EXPORTER="none")
    assert exports(OTEL_TRACES_EXPORTER="otlp")
    assert not exports(OTEL_TRACES_SAMPLER="always_off")
    assert caplog.records == []
    with pytest.raises(UserError, match="zipkin"):
        exports(OTEL_TRACES_EXPORTER="zipkin")


async def test_standby_exports_what_ended_shortly_before_it_leads(make_tracing, pod, manual_clock, exporter):
    tracing = make_tracing(manual_clock, exporter, standby=True)
    tracing.is_leader = False
    for name in ("early", "late"):
        trace_pod(tracing, pod, manual_clock, name, 1)
        manual_clock.pass_ms(STANDBY_SECONDS * 1000 - 1000)
    assert [record.name for record in tracing.recent.records()] == ["early", "late"]
    await tracing.flush()
    assert exporter.traces == []
    tracing.start_leading()
    trace_pod(tracing, pod, manual_clock, "own", 1)
    await tracing.flush()
    assert [trace.root.attributes["k8s.pod.name"] for trace in exporter.traces] == ["late", "own"]
