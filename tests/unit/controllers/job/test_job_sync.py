"""Writes of one sync, and where it continues after a failure."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.job import job_sync
from kubeloop.controllers.job.job_controller import JobController
from kubeloop.controllers.job.job_sync import BATCH_SECONDS
from kubeloop.controllers.job.pod_plan import JobPodPlan
from kubeloop.kube.objects.api_types import Job, Pod, convert
from kubeloop.kube.objects.resources import JOBS
from support.apiserver.faulty_transport import WatchFault, injected_error
from support.objects.job_pods import TestedJob

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def job(fake_apiserver, start):
    await start(fake_apiserver.informers, JobController(fake_apiserver.context))
    return TestedJob(fake_apiserver)


def summary(server) -> list[str]:
    """Return the writes: method, resource and, for a status, the fields that it sends."""
    lines = []
    for method, path, body in server.requests:
        resource = "status" if path.endswith("/status") else "job" if path.startswith(JOBS.path("ns")) else "pod"
        lines.append(" ".join([method, resource, *sorted(body.get("status", {}))]))
    return lines


async def test_order_of_writes_of_a_job_with_one_pod(job):
    job.create()
    await asyncio.sleep(5)
    job.succeed()
    await asyncio.sleep(5)
    assert summary(job.server) == [
        "POST pod",
        "PATCH status active ready startTime terminating uncountedTerminatedPods",
        "PATCH status active conditions uncountedTerminatedPods",
        "PATCH pod",
        "PATCH status completionTime conditions succeeded uncountedTerminatedPods",
    ]


async def test_pod_is_counted_once_if_its_finalizer_cannot_be_removed(job):
    job.create(completions=2, parallelism=2)
    await asyncio.sleep(5)
    refused = job.unfinished[0]
    job.server.transport.reject = lambda method, path: (
        injected_error(500) if method == "PATCH" and path.endswith(f"/pods/{refused}") else None
    )
    job.succeed()
    await asyncio.sleep(30)
    assert job.status["succeeded"] == 1
    assert len(job.status["uncountedTerminatedPods"]["succeeded"]) == 1
    assert job.conditions == [("SuccessCriteriaMet", "CompletionsReached")]
    job.server.transport.reject = lambda method, path: None
    await asyncio.sleep(120)
    assert job.status["succeeded"] == 2
    assert job.conditions[-1] == ("Complete", "CompletionsReached")


async def test_pod_is_counted_once_if_it_is_gone_before_the_cache_shows_that(job):
    job.create(completions=2, parallelism=2)
    await asyncio.sleep(5)
    gone = job.unfinished[0]
    job.succeed(gone)
    await asyncio.sleep(BATCH_SECONDS / 2)
    job.server.transport.watch_faults.append(WatchFault("silence", resource="pods"))
    job.server.transport.break_watches("pods")
    job.patch_pod(gone, {"finalizers": None})
    job.remove(gone)
    await asyncio.sleep(5)
    assert job.status["succeeded"] == 1
    job.change(backoffLimit=7)  # enqueues the Job
    await asyncio.sleep(5)
    assert job.status["succeeded"] == 1


async def test_finalizer_stays_until_the_status_is_written(job):
    job.create()
    await asyncio.sleep(5)
    job.server.transport.reject = lambda method, path: injected_error(500) if path.endswith("/status") else None
    job.succeed()
    await asyncio.sleep(30)
    assert job.pods[0]["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    job.server.transport.reject = lambda method, path: None
    await asyncio.sleep(120)
    assert job.status["succeeded"] == 1
    assert "finalizers" not in job.pods[0]["metadata"]


async def test_failed_creations_are_retried_and_reported(job):
    job.server.transport.reject = lambda method, path: injected_error(403) if method == "POST" else None
    job.create(completions=3, parallelism=3)
    await asyncio.sleep(5)
    assert not job.pods
    assert set(job.events) == {"FailedCreate"}
    job.server.transport.reject = lambda method, path: None
    await asyncio.sleep(60)
    assert len(job.unfinished) == 3


async def test_events_of_pods_are_handled_together(job):
    job.create(completions=3, parallelism=3)
    await asyncio.sleep(5)
    before = len(job.server.written("PATCH"))
    for name in job.unfinished:
        job.succeed(name)
        await asyncio.sleep(BATCH_SECONDS / 4)
    assert len(job.server.written("PATCH")) == before
    await asyncio.sleep(5)
    assert summary(job.server)[-1].startswith("PATCH status completionTime")
    assert len(job.server.written("PATCH")) == before + 5  # the status twice, and the finalizers


@pytest.mark.parametrize(
    ("create", "delete", "wait_seconds", "suspend", "action"),
    [
        pytest.param(0, 0, 0.0, False, "tracking", id="no change"),
        pytest.param(1, 0, 0.0, False, "pods_created", id="creates"),
        pytest.param(0, 0, 5.0, False, "pods_created", id="waits to create"),
        pytest.param(0, 1, 0.0, False, "pods_deleted", id="deletes"),
        pytest.param(0, 0, 0.0, True, "pods_deleted", id="suspended"),
    ],
)
def test_action_of_a_sync_in_its_metric(create, delete, wait_seconds, suspend, action):
    plan = JobPodPlan(create=create, delete=[convert(Pod, {})] * delete, wait_seconds=wait_seconds)
    assert job_sync._action(convert(Job, {"spec": {"suspend": suspend}}), plan) == action
