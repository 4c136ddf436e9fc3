"""State that the controller keeps between syncs."""

from __future__ import annotations

import pytest

from kubeloop.controllers.job.job_records import JobRecords
from kubeloop.controllers.job.policies.pod_backoff import BackoffRecord
from kubeloop.controllers.runtime.controller import StaleCache
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.testing.virtual_time import VirtualClock
from support.objects.job_objects import NOW

pytestmark = pytest.mark.virtual_time


def records() -> JobRecords:
    return JobRecords(VirtualClock(), ConsistencyStore({"pods": lambda: "5"}))


async def test_everything_of_a_deleted_job_is_forgotten():
    state = records()
    state.expectations.expect_creations("ns/j", 1)
    state.released.expect("ns/j", ["a"])
    state.backoffs["ns/j"] = BackoffRecord(1, NOW)
    state.finished["ns/j"] = "uid-j"
    state.consistency.wrote_at("ns/j", "uid-j", "pods", "9")
    state.forget("ns/j")
    assert state.expectations.met("ns/j")
    assert not state.released.pending("ns/j")
    assert not state.backoffs
    assert not state.finished
    state.consistency.ensure_ready("ns/j")


async def test_writes_of_another_uid_stay():
    state = records()
    state.consistency.wrote_at("ns/j", "uid-new", "pods", "9")
    state.forget("ns/j", "uid-j")
    with pytest.raises(StaleCache):
        state.consistency.ensure_ready("ns/j")
