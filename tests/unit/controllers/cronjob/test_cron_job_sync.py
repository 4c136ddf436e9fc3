"""One sync of a CronJob, without the controller: what remains to be written after a failure or an outdated cache."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.controllers.cronjob.cron_job_sync import CronJobSync
from kubeloop.devcluster.api import errors
from kubeloop.kube.errors import ApiError
from kubeloop.kube.objects.api_types import CronJob, Job, convert
from kubeloop.kube.objects.resources import CRON_JOBS, JOBS
from support.apiserver.fake_apiserver import FakeApiServer
from support.objects.batch_objects import create_cron_job, create_job, finish_job

pytestmark = pytest.mark.virtual_time


def cached(api: FakeApiServer) -> CronJob:
    return convert(CronJob, api.store.get(CRON_JOBS, "ns", "c"))


def new_sync(api: FakeApiServer, cron_job: CronJob) -> CronJobSync:
    jobs = [convert(Job, job) for job in api.objects(JOBS)]
    return CronJobSync(cron_job, jobs, api.context, api.context.traces.reconcile("cronjob", "ns/c"))


def add_active_job(api: FakeApiServer, name: str = "first") -> None:
    """Create a Job of the CronJob, and list it as active."""
    owner = api.store.get(CRON_JOBS, "ns", "c")["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": owner["uid"], "controller": True}
    create_job(api, name, reference)
    uid = api.store.get(JOBS, "ns", name)["metadata"]["uid"]
    status: dict[str, Any] = {"active": [{"kind": "Job", "namespace": "ns", "name": name, "uid": uid}]}
    path = CRON_JOBS.path("ns", "c", "status")
    api.api.succeed("PATCH", path, {"status": status}, content_type="application/merge-patch+json")


async def test_status_is_kept_when_the_create_fails(fake_apiserver):
    create_cron_job(fake_apiserver, "c", "* * * * *")
    add_active_job(fake_apiserver)
    finish_job(fake_apiserver, "first")
    await asyncio.sleep(90)
    fake_apiserver.transport.reject = lambda method, path: errors.internal_error("etcd") if method == "POST" else None
    sync = new_sync(fake_apiserver, cached(fake_apiserver))
    with pytest.raises(ApiError):
        await sync.run()
    assert sync.status.active == ()
    assert sync.status.last_successful_time is not None
    assert sync.status.last_schedule_time is None


async def test_outdated_cache_is_replaced_by_the_latest_status(fake_apiserver):
    create_cron_job(fake_apiserver, "c", "0 0 1 1 *")
    before = cached(fake_apiserver)
    add_active_job(fake_apiserver)
    sync = new_sync(fake_apiserver, before)
    await sync.run()
    assert sync.cron_job == cached(fake_apiserver)
    assert sync.status == sync.cron_job.status
    assert fake_apiserver.context.events.events == []


async def test_failed_job_does_not_change_the_time_of_the_last_success(fake_apiserver):
    create_cron_job(fake_apiserver, "c", "0 0 1 1 *")
    add_active_job(fake_apiserver)
    finish_job(fake_apiserver, "first", "Failed")
    succeeded = convert(CronJob, {"status": {"lastSuccessfulTime": "2026-01-01T00:00:00Z"}}).status
    cron_job = cached(fake_apiserver)
    sync = new_sync(fake_apiserver, replace(cron_job, status=succeeded))
    await sync.run()
    assert sync.status.last_successful_time == succeeded.last_successful_time


async def test_active_job_of_the_due_time_is_not_created_again(fake_apiserver):
    create_cron_job(fake_apiserver, "c", "* * * * *")
    await asyncio.sleep(90)
    add_active_job(fake_apiserver, f"c-{int(fake_apiserver.clock.now().timestamp()) // 60}")
    seconds_to_next_time = await new_sync(fake_apiserver, cached(fake_apiserver)).run()
    assert 0 < seconds_to_next_time <= 60
    assert fake_apiserver.requests == []
