"""Records of a terminated process: continued, or finished when the informer has synced."""

from __future__ import annotations

import random

import pytest

from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.pod_recorder import standalone_pod_recorder
from kubeloop.tracing.recording.restored_pod_records import RestoredPodRecords
from kubeloop.tracing.spans.pod_record import Gap


@pytest.fixture
def restored(manual_clock):
    """Return a function that restores the records that `record` leaves open, and the records finished from then on."""

    def restore(record, *, until_ready=False):
        before = OpenPodRecords(clock=manual_clock, until_ready=until_ready)
        record(standalone_pod_recorder(before, rng=random.Random(1)))
        until_ns = manual_clock.time_ns()
        manual_clock.pass_ms(5_000)
        finished = []
        after = OpenPodRecords(clock=manual_clock, on_finished=finished.append, until_ready=until_ready)
        return RestoredPodRecords(after, [(record, until_ns) for record in before.all()]), finished

    return restore


def test_record_is_continued_by_uid_with_a_gap(restored, pod):
    web = pod()
    records, finished = restored(lambda recorder: recorder.observed(web))
    assert (web.metadata.uid in records, len(records)) == (True, 1)
    record = records.continue_record("", web)
    assert [type(fact) for fact in record.facts] == [Gap]
    assert record.continued_ns == record.facts[0].end_ns
    records.informer_synced()
    assert (finished, len(records)) == ([], 0)


def test_requested_record_is_continued_by_traceparent(restored, pod):
    requests = []
    records, _ = restored(
        lambda recorder: requests.append(
            recorder.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f")
        )
    )
    (request,) = requests
    record = records.continue_record(request.traceparent, pod(annotations=request.annotations))
    assert record is not None
    assert record.create_end_ns >= record.create_start_ns
    assert records.continue_record(request.traceparent, pod()) is None


def test_pods_that_the_list_lacks_were_deleted(restored, pod):
    records, finished = restored(lambda recorder: recorder.observed(pod()))
    records.informer_synced()
    (record,) = finished
    assert (record.outcome, record.reason) == ("deleted", "deleted while kubeloop was not running")


def test_bound_pod_that_the_list_lacks_was_bound(restored, pod):
    def observe(recorder):
        web = pod()
        recorder.observed(web)
        recorder.bind_started(web, "n1")
        recorder.observed(pod(node="n1"))

    records, finished = restored(observe)
    records.informer_synced()
    (record,) = finished
    assert (record.outcome, record.end_ns) == ("bound", record.bound_ns)


def test_request_without_a_pod_has_failed(restored):
    records, finished = restored(
        lambda recorder: recorder.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f")
    )
    records.informer_synced()
    (record,) = finished
    assert (record.outcome, record.create_error) == ("create failed", "kubeloop ended before the response")
