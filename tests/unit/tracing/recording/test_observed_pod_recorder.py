"""Recorder of observed pods: IDs, sampling, and records of earlier processes."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.observed_types import ObservedPod, ObservedPodMeta
from kubeloop.tracing.recording.observed_pod_recorder import ObservedPodRecorder
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.restored_pod_records import RestoredPodRecords
from kubeloop.tracing.sampling.samplers import DISABLED_SAMPLER, Sampler
from kubeloop.tracing.spans.pod_milestones import PodMilestones


@pytest.fixture
def open_recorder(manual_clock):
    def start(restored=(), sampler=None):
        records = OpenPodRecords(clock=manual_clock)
        return records, ObservedPodRecorder(
            records, RestoredPodRecords(records, restored), sampler=sampler or Sampler()
        )

    return start


def created_pod():
    return ObservedPod(metadata=ObservedPodMeta(name="web-1", namespace="shop", uid="web-1"))


def test_two_processes_give_a_pod_the_same_trace(open_recorder):
    (_, first), (_, second) = open_recorder(), open_recorder()
    one, other = first.new_record(created_pod(), PodMilestones()), second.new_record(created_pod(), PodMilestones())
    assert one.traceparent == other.traceparent


def test_followed_pod_is_open(open_recorder):
    records, recorder = open_recorder()
    record = recorder.follow(created_pod(), PodMilestones())
    assert [*records.all()] == [record]
    assert record.is_observed


def test_pod_that_the_sampler_leaves_out_has_no_record(open_recorder):
    records, recorder = open_recorder(sampler=DISABLED_SAMPLER)
    assert recorder.follow(created_pod(), PodMilestones()) is None
    assert records.count() == 0


def test_record_of_an_earlier_process_is_continued(open_recorder, manual_clock):
    web = created_pod()
    _, before = open_recorder()
    record = before.follow(web, PodMilestones())
    records, after = open_recorder([(record, manual_clock.time_ns())])
    manual_clock.pass_ms(1_000)
    assert after.is_restored(web.metadata.uid)
    assert after.follow(web, PodMilestones()) is record
    assert record.continued_ns == manual_clock.time_ns()
    assert not after.is_restored(web.metadata.uid)
    after.informer_synced()
    assert [*records.all()] == [record]
