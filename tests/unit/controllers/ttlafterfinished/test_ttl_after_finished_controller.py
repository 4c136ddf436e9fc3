"""The TTL-after-finished controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.controllers.api.runner import new_controller
from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.ttlafterfinished.ttl_after_finished_controller import (
    TTLAfterFinishedController,
    seconds_to_expiry,
)
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.api_types import Job, convert
from kubeloop.kube.objects.resources import JOBS
from support.apiserver.faulty_transport import SentRequest
from support.objects.batch_objects import create_job, finish_job, job_body

MERGE = "application/merge-patch+json"


@pytest.fixture
async def apiserver(fake_apiserver, start):
    await start(fake_apiserver.informers, new_controller(TTLAfterFinishedController, fake_apiserver.context))
    return fake_apiserver


@pytest.mark.virtual_time
@pytest.mark.parametrize("condition", ["Complete", "Failed"])
async def test_finished_job_is_deleted_after_its_ttl(apiserver, condition: str):
    create_job(apiserver, "a", ttlSecondsAfterFinished=60)
    await asyncio.sleep(100)
    finish_job(apiserver, "a", condition)
    await asyncio.sleep(58)
    assert apiserver.names(JOBS) == ["a"]
    await asyncio.sleep(3)
    assert apiserver.store.get(JOBS, "ns", "a")["metadata"]["finalizers"] == ["foregroundDeletion"]


@pytest.mark.virtual_time
async def test_extended_ttl_postpones_the_deletion(apiserver):
    create_job(apiserver, "a", ttlSecondsAfterFinished=60)
    finish_job(apiserver, "a")
    await asyncio.sleep(30)
    apiserver.api.succeed("PATCH", JOBS.path("ns", "a"), {"spec": {"ttlSecondsAfterFinished": 600}}, content_type=MERGE)
    await asyncio.sleep(300)
    assert apiserver.requests == []
    await asyncio.sleep(300)
    assert apiserver.written("DELETE") == [JOBS.path("ns", "a")]


@pytest.mark.virtual_time
async def test_cache_that_lacks_the_extended_ttl_deletes_nothing(apiserver):
    create_job(apiserver, "a", ttlSecondsAfterFinished=60)
    finish_job(apiserver, "a")
    await asyncio.sleep(30)
    apiserver.transport.reject = lambda method, path: errors.internal_error("etcd") if path.endswith("/jobs") else None
    apiserver.transport.break_watches("jobs")
    apiserver.api.succeed("PATCH", JOBS.path("ns", "a"), {"spec": {"ttlSecondsAfterFinished": 600}}, content_type=MERGE)
    await asyncio.sleep(200)
    assert apiserver.informers.informer(JOBS).store["ns/a"].spec.ttl_seconds_after_finished == 60
    assert apiserver.requests == []


@pytest.mark.virtual_time
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_expired_job_that_is_gone_before_its_deletion_is_no_error(apiserver, method: str):
    create_job(apiserver, "a", ttlSecondsAfterFinished=60)
    finish_job(apiserver, "a")
    sent = []

    def delete_first(request: SentRequest) -> None:
        if (request.method, request.path) == (method, JOBS.path("ns", "a")):
            sent.append(request)
            apiserver.store.delete(JOBS, "ns", "a")

    apiserver.transport.on_send = delete_first
    await asyncio.sleep(100)
    assert len(sent) == 1
    assert not any(apiserver.metrics.values("kubeloop_reconcile_errors").values())


@pytest.mark.virtual_time
async def test_jobs_without_ttl_and_running_jobs_stay(apiserver):
    create_job(apiserver, "running", ttlSecondsAfterFinished=0)
    create_job(apiserver, "without")
    finish_job(apiserver, "without")
    await asyncio.sleep(1000)
    assert apiserver.requests == []


def job(condition: dict[str, Any] | None, ttl: int | None = 60) -> Job:
    body = job_body("a", **({} if ttl is None else {"ttlSecondsAfterFinished": ttl}))
    return convert(Job, {**body, "status": {"conditions": [condition] if condition else []}})


def test_seconds_to_expiry():
    now = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    finished = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    assert seconds_to_expiry(job(finished), now) == 30
    assert seconds_to_expiry(job(finished, ttl=10), now) == -20
    assert seconds_to_expiry(job(finished, ttl=None), now) is None
    assert seconds_to_expiry(job(None), now) is None
    with pytest.raises(ReconcileError, match="unable to find the time when the Job"):
        seconds_to_expiry(job({"type": "Failed", "status": "True"}), now)


@pytest.mark.virtual_time
async def test_deletion_of_an_expired_job_is_counted(apiserver):
    create_job(apiserver, "a", ttlSecondsAfterFinished=60)
    finish_job(apiserver, "a")
    await asyncio.sleep(59)
    prefix = "ttl_after_finished_controller_job_deletion_duration_seconds"
    assert apiserver.metrics.values(prefix) == {"_count": 0}
    await asyncio.sleep(3)
    assert apiserver.metrics.values(prefix) == {"_count": 1}
