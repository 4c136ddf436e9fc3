"""Recorder of apply requests."""

from __future__ import annotations

import random

from kubeloop.tracing.recording.apply_recorder import ApplyRecorder
from kubeloop.tracing.sampling.samplers import DISABLED_SAMPLER, Sampler


def recorder(clock, finished, sampler):
    return ApplyRecorder(
        clock=clock, rng=random.Random(1), sampler=sampler, on_finished=lambda trace, _: finished.append(trace)
    )


def test_trace_has_one_child_per_object_and_the_first_error(manual_clock):
    finished = []
    apply = recorder(manual_clock, finished, Sampler())
    for name, error in (("a", ""), ("b", "forbidden"), ("c", "conflict")):
        traceparent = apply.begin()
        manual_clock.pass_ms(2)
        apply.end(traceparent, "Deployment", "shop", name, "failed" if error else "created", error)
    apply.finish()
    (trace,) = finished
    trace.check()
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
