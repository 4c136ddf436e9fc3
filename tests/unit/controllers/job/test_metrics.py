"""job_controller_* metrics of whole Jobs, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.job.job_controller import JobController
from kubeloop.controllers.job.metrics import JobMetrics
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.api_types import Job, JobStatus, convert
from kubeloop.kube.objects.resources import PODS
from support.objects.job_pods import TestedJob
from support.simulation.metric_values import RecordedMetrics

pytestmark = pytest.mark.virtual_time
FAIL_JOB = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}


@pytest.fixture
async def job(fake_apiserver, start):
    await start(fake_apiserver.informers, JobController(fake_apiserver.context))
    return TestedJob(fake_apiserver)


def values(job: TestedJob) -> dict[str, float]:
    """Return the counts, but for those of syncs."""
    recorded = job.server.metrics.values("job_controller_")
    return {name: value for name, value in recorded.items() if "sync" not in name and value}


async def test_successful_job_counts_its_pods(job):
    job.create(completions=2, parallelism=2)
    await asyncio.sleep(5)
    assert values(job) == {"job_pods_creation_total,new,succeeded": 2}
    job.succeed()
    await asyncio.sleep(5)
    assert values(job) == {
        "job_pods_creation_total,new,succeeded": 2,
        "job_pods_finished_total,NonIndexed,succeeded": 2,
        "jobs_finished_total,NonIndexed,succeeded,CompletionsReached": 1,
        "terminated_pods_tracking_finalizer_total,add": 2,
        "terminated_pods_tracking_finalizer_total,delete": 2,
    }
    syncs = job.server.metrics.values("job_controller_job_sync")
    assert syncs["s_total,NonIndexed,success,pods_created"] == 1
    assert syncs["_duration_seconds_count,NonIndexed,success,pods_created"] == 1


async def test_failed_pod_counts_by_policy_and_reason(job):
    job.create(podFailurePolicy={"rules": [FAIL_JOB]}, backoffLimit=3)
    await asyncio.sleep(5)
    job.fail(conditions=("DisruptionTarget",))
    await asyncio.sleep(5)
    assert values(job) == {
        "job_pods_creation_total,new,succeeded": 1,
        "job_pods_finished_total,NonIndexed,failed": 1,
        "jobs_finished_total,NonIndexed,failed,PodFailurePolicy": 1,
        "pod_failures_handled_by_failure_policy_total,FailJob": 1,
        "terminated_pods_tracking_finalizer_total,add": 1,
        "terminated_pods_tracking_finalizer_total,delete": 1,
    }


async def test_replacement_of_a_failed_pod_has_a_reason_of_its_own(job):
    job.create(backoffLimit=3)
    await asyncio.sleep(5)
    job.fail()
    await asyncio.sleep(60)
    assert values(job)["job_pods_creation_total,recreate_terminating_or_failed,succeeded"] == 1


async def test_rejected_pod_counts_as_a_failed_creation(job):
    job.server.transport.reject = lambda method, path: errors.forbidden(PODS, "", "no") if method == "POST" else None
    job.create()
    await asyncio.sleep(0.5)
    assert values(job) == {"job_pods_creation_total,new,failed": 1}
    assert job.server.metrics.values("job_controller_job_syncs_total") == {",NonIndexed,error,pods_created": 1}


async def test_job_of_another_controller_is_counted_once(job):
    job.create(managedBy="example.com/other")
    await asyncio.sleep(5)
    assert values(job) == {"jobs_by_external_controller_total,example.com/other": 1}


@pytest.mark.parametrize(("limit", "label"), [(None, "global"), (1, "perIndex")])
def test_indexes_count_when_the_status_has_them(limit: int | None, label: str):
    metrics = RecordedMetrics()
    spec = {"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": limit}
    status = {"succeeded": 2, "completedIndexes": "0,1", "failed": 3, "failedIndexes": "2-4"}
    JobMetrics(metrics).status_written(convert(Job, {"spec": spec, "status": status}), JobStatus(succeeded=1))
    assert metrics.values("job_controller_job_") == {
        f"finished_indexes_total,succeeded,{label}": 1,
        f"finished_indexes_total,failed,{label}": 3,
        "pods_finished_total,Indexed,succeeded": 1,
        "pods_finished_total,Indexed,failed": 3,
    }
