"""Recorder of apply requests."""

from __future__ import annotations

import random

import pytest

from kubeloop.kube.client.current_span import current_span
from kubeloop.tracing.recording.apply_recorder import ApplyRecorder
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from kubeloop.tracing.sampling.samplers import DISABLED_SAMPLER, Sampler
from support.traces.span_tree import check_spans


def recorder(clock, finished, sampler, reconciles=None):
    return ApplyRecorder(
        clock=clock,
        rng=random.Random(1),
        sampler=sampler,
        reconciles=reconciles or ReconcileRecorder(clock=clock, rng=random.Random(2)),
        on_finished=lambda trace, _: finished.append(trace),
    )


def test_trace_has_one_child_per_object_and_the_first_error(manual_clock):
    finished = []
    apply = recorder(manual_clock, finished, Sampler())
    for name, error in (("a", ""), ("b", "forbidden"), ("c", "conflict")):
        traceparent = apply.begin()
        assert current_span.get().traceparent == traceparent
        manual_clock.pass_ms(2)
        apply.end(traceparent, "Deployment", "shop", name, "failed" if error else "created", error)
    assert current_span.get() is None
    apply.finish()
    (trace,) = finished
    check_spans(trace)
    assert trace.root.attributes == {"kubeloop.objects": 3}
    assert trace.root.error == "forbidden"
    assert [span.attributes["kubeloop.name"] for span in trace.spans[1:]] == ["a", "b", "c"]
    assert [span.end_ns - span.start_ns for span in trace.spans[1:]] == [2_000_000] * 3


def test_disabled_sampler_records_nothing(manual_clock):
    finished = []
    apply = recorder(manual_clock, finished, DISABLED_SAMPLER)
    assert apply.begin() == ""
    apply.end("", "Pod", "", "a", "created")
    apply.finish()
    assert finished == []


@pytest.mark.parametrize(
    ("outcome", "is_cause"), [("created", True), ("unknown", True), ("unchanged", False), ("refused", False)]
)
def test_reconciles_link_to_requests_that_may_have_changed_the_object(manual_clock, outcome, is_cause):
    records = []
    reconciles = ReconcileRecorder(
        clock=manual_clock, rng=random.Random(2), on_finished=lambda record, _: records.append(record)
    )
    apply = recorder(manual_clock, [], Sampler(), reconciles)
    traceparent = apply.begin("deployment", "shop/web")
    apply.end(traceparent, "Deployment", "shop", "web", outcome)
    reconciles.reconcile("deployment", "shop/web").finish(changed=True)
    assert records[0].links == ([(traceparent, "cause")] if is_cause else [])
