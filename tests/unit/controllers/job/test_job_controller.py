"""The Job controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.job.job_controller import JobController
from support.job_pods import TestedJob

pytestmark = pytest.mark.virtual_time

SYNCED = 5  # seconds within which the controller has handled a change


@pytest.fixture
async def job(fake_apiserver, start):
    await start(fake_apiserver.informers, JobController(fake_apiserver.context))
    return TestedJob(fake_apiserver)


async def test_job_runs_pods_until_completions_are_reached(job):
    job.create(completions=3, parallelism=2)
    await asyncio.sleep(SYNCED)
    assert len(job.unfinished) == 2
    job.run()
    await asyncio.sleep(SYNCED)
    assert job.status == {"active": 2, "ready": 2}
    job.succeed()
    await asyncio.sleep(SYNCED)
    assert job.status == {"active": 1, "succeeded": 2}
    job.succeed()
    await asyncio.sleep(SYNCED)
    assert job.status == {
        "succeeded": 3,
        "conditions": [("SuccessCriteriaMet", "CompletionsReached"), ("Complete", "CompletionsReached")],
    }
    assert job.events == ["SuccessfulCreate"] * 3 + ["Completed"]
    assert all("finalizers" not in pod["metadata"] for pod in job.pods)
