"""The CronJob controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.controllers.cronjob.cron_job_controller import CronJobController
from kubeloop.controllers.job.job_controller import JobController
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import CRON_JOBS, JOBS
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.pod_recorder import standalone_pod_recorder
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION
from support.apiserver.faulty_transport import SentRequest
from support.objects.batch_objects import create_cron_job, create_job, finish_job

pytestmark = pytest.mark.virtual_time

MINUTE = 60
CAUSE = f"00-{1:032x}-{2:016x}-01"


@pytest.fixture
async def apiserver(fake_apiserver, start):
    await start(fake_apiserver.informers, CronJobController(fake_apiserver.context))
    return fake_apiserver


def create(api: Any, schedule: str = "* * * * *", **spec: Any) -> None:
    create_cron_job(api, "c", schedule, **spec)


def status(api: Any) -> dict[str, Any]:
    return api.store.get(CRON_JOBS, "ns", "c").get("status", {})


def active(api: Any) -> list[str]:
    return [reference["name"] for reference in status(api).get("active", ())]


def update(api: Any, **spec: Any) -> None:
    api.api.succeed("PATCH", CRON_JOBS.path("ns", "c"), {"spec": spec}, content_type="application/merge-patch+json")


def reasons(api: Any) -> list[str]:
    return [event.reason for event in api.context.events.events]


async def test_job_is_created_at_each_scheduled_time(apiserver):
    create(apiserver)
    await asyncio.sleep(3 * MINUTE)
    names = apiserver.names(JOBS)
    assert len(names) == 3
    assert active(apiserver) == names
    job = apiserver.objects(JOBS)[-1]
    assert (
        status(apiserver)["lastScheduleTime"]
        == job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    )
    assert reasons(apiserver) == ["SuccessfulCreate"] * 3


async def test_finished_jobs_leave_the_status_and_the_oldest_are_deleted(apiserver):
    create(apiserver, successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    await asyncio.sleep(3 * MINUTE)
    first, second, third = apiserver.names(JOBS)
    finish_job(apiserver, first)
    await asyncio.sleep(1)
    assert active(apiserver) == [second, third]
    completed = status(apiserver)["lastSuccessfulTime"]
    finish_job(apiserver, second, "Failed")
    await asyncio.sleep(1)
    assert apiserver.names(JOBS) == [first, third]
    finish_job(apiserver, third)
    await asyncio.sleep(1)
    assert apiserver.names(JOBS) == [third]
    assert status(apiserver)["lastSuccessfulTime"] > completed


async def test_changes_of_a_running_job_need_no_sync(fake_apiserver, start, monkeypatch):
    controller = CronJobController(fake_apiserver.context)
    reasons = []
    add = controller.queue.add
    monkeypatch.setattr(controller.queue, "add", lambda key, reason="": (reasons.append(reason), add(key, reason)))
    await start(fake_apiserver.informers, controller)
    create(fake_apiserver, successfulJobsHistoryLimit=0)
    await asyncio.sleep(MINUTE)
    (name,) = fake_apiserver.names(JOBS)
    reasons.clear()
    patch = {"metadata": {"annotations": {"a": "b"}}}
    fake_apiserver.api.succeed("PATCH", JOBS.path("ns", name), patch, content_type="application/merge-patch+json")
    await asyncio.sleep(1)
    assert reasons == []
    finish_job(fake_apiserver, name)
    await asyncio.sleep(1)
    assert reasons[0] == "Job changed"
    assert (fake_apiserver.names(JOBS), active(fake_apiserver)) == ([], [])


async def test_forbid_waits_for_the_running_job(apiserver):
    create(apiserver, concurrencyPolicy="Forbid")
    await asyncio.sleep(3 * MINUTE)
    (name,) = apiserver.names(JOBS)
    assert "JobAlreadyActive" in reasons(apiserver)
    finish_job(apiserver, name)
    await asyncio.sleep(1)
    assert len(apiserver.names(JOBS)) == 2  # the time that was missed meanwhile


async def test_replace_deletes_the_running_job(apiserver):
    create(apiserver, concurrencyPolicy="Replace")
    await asyncio.sleep(MINUTE)
    (old,) = apiserver.names(JOBS)
    await asyncio.sleep(MINUTE)
    (new,) = apiserver.names(JOBS)
    assert new != old
    assert active(apiserver) == [new]
    assert "SuccessfulDelete" in reasons(apiserver)


async def test_refused_deletion_of_an_old_job_has_an_event(apiserver):
    create(apiserver, successfulJobsHistoryLimit=0)
    await asyncio.sleep(MINUTE + 1)
    apiserver.transport.reject = lambda method, path: errors.forbidden(JOBS, "", "no") if method == "DELETE" else None
    finish_job(apiserver, *apiserver.names(JOBS))
    await asyncio.sleep(1)
    assert "FailedDelete" in reasons(apiserver)


async def test_suspended_cron_job_starts_nothing_until_resumed(apiserver):
    create(apiserver, suspend=True)
    await asyncio.sleep(3 * MINUTE)
    assert apiserver.names(JOBS) == []
    update(apiserver, suspend=False)
    await asyncio.sleep(1)
    assert len(apiserver.names(JOBS)) == 1


async def test_job_is_not_created_after_the_deadline(apiserver):
    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.internal_error("etcd") if method == "POST" and path.endswith("/jobs") else None

    apiserver.transport.reject = reject
    create(apiserver, "*/10 * * * *", startingDeadlineSeconds=30)
    await asyncio.sleep(11 * MINUTE)
    apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(8 * MINUTE)
    assert set(reasons(apiserver)) == {"FailedCreate"}
    await asyncio.sleep(2 * MINUTE)
    assert len(apiserver.names(JOBS)) == 1  # that of the next time


async def test_changed_schedule_applies_at_its_next_time(apiserver):
    create(apiserver, "0 0 1 1 *")
    await asyncio.sleep(1)
    update(apiserver, schedule="* * * * *")
    await asyncio.sleep(MINUTE)
    assert len(apiserver.names(JOBS)) == 1


async def test_deleted_job_leaves_the_status(apiserver):
    create(apiserver, "*/10 * * * *")
    await asyncio.sleep(10 * MINUTE)
    apiserver.delete(JOBS, apiserver.names(JOBS)[0])
    await asyncio.sleep(1)
    assert active(apiserver) == []
    assert "MissingJob" in reasons(apiserver)


async def test_lost_response_creates_no_second_job(apiserver):
    """The create succeeds, but the status is not written: the next sync finds the Job by its name."""
    failures = iter([True])

    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.conflict(CRON_JOBS, "c") if path.endswith("/c/status") and next(failures, False) else None

    apiserver.transport.reject = reject
    create(apiserver, "*/10 * * * *")
    await asyncio.sleep(11 * MINUTE)
    assert active(apiserver) == apiserver.names(JOBS)
    assert len(apiserver.names(JOBS)) == 1


async def test_refused_job_is_created_at_the_next_try(apiserver, caplog):
    rejected: list[str] = []

    def reject(method: str, path: str) -> errors.StatusError | None:
        if method == "POST" and path == JOBS.path("ns") and not rejected:
            rejected.append(path)
            return errors.internal_error("etcd")
        return None

    create(apiserver)
    apiserver.transport.reject = reject
    await asyncio.sleep(MINUTE + 1)
    assert rejected
    assert len(apiserver.names(JOBS)) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"schedule": "TZ=UTC * * * * *"}, "UnsupportedSchedule", id="time zone in the schedule"),
        pytest.param({"schedule": "* * * *"}, "UnParseableCronJobSchedule", id="four fields"),
        pytest.param({"timeZone": "Nowhere/City"}, "UnknownTimeZone", id="unknown time zone"),
    ],
)
async def test_stored_schedule_that_is_invalid_has_an_event(apiserver, spec, reason):
    create(apiserver, "0 0 1 1 *")
    stored = apiserver.store.get(CRON_JOBS, "ns", "c")
    apiserver.store.update(CRON_JOBS, {**stored, "spec": {**stored["spec"], **spec}})
    await asyncio.sleep(1)
    assert reasons(apiserver)[0] == reason
    assert apiserver.names(JOBS) == []


async def test_more_than_100_missed_times_have_an_event_and_one_job(apiserver):
    create(apiserver, suspend=True)
    await asyncio.sleep(102 * MINUTE)
    update(apiserver, suspend=False)
    await asyncio.sleep(1)
    assert reasons(apiserver) == ["TooManyMissedTimes", "SuccessfulCreate"]
    assert len(apiserver.names(JOBS)) == 1


async def test_job_that_cannot_be_read_is_not_replaced(apiserver):
    create(apiserver, concurrencyPolicy="Replace")
    await asyncio.sleep(MINUTE + 1)
    names = apiserver.names(JOBS)
    apiserver.transport.reject = lambda method, path: (
        errors.internal_error("etcd") if method == "GET" and path.startswith(f"{JOBS.path('ns')}/") else None
    )
    await asyncio.sleep(MINUTE + 10)
    assert apiserver.names(JOBS) == names
    assert set(reasons(apiserver)[1:]) == {"FailedGet"}
    apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(MINUTE)
    assert len(apiserver.names(JOBS)) == 1
    assert apiserver.names(JOBS) != names


async def test_job_whose_deletion_is_refused_is_not_replaced(apiserver):
    create(apiserver, concurrencyPolicy="Replace")
    await asyncio.sleep(MINUTE + 1)
    names = apiserver.names(JOBS)
    apiserver.transport.reject = lambda method, path: errors.forbidden(JOBS, "", "no") if method == "DELETE" else None
    await asyncio.sleep(MINUTE + 10)
    assert apiserver.names(JOBS) == names
    assert set(reasons(apiserver)[1:]) == {"FailedDelete"}


async def test_job_of_another_owner_with_the_name_of_the_next_one_is_left_alone(apiserver):
    create(apiserver)
    await asyncio.sleep(1)
    minute = int(apiserver.clock.now().timestamp()) // 60 + 1
    create_job(apiserver, f"c-{minute}")
    await asyncio.sleep(MINUTE)
    assert active(apiserver) == []
    assert "SuccessfulCreate" not in reasons(apiserver)
    await asyncio.sleep(MINUTE)
    assert active(apiserver) == [f"c-{minute + 1}"], "the schedule continues"


async def test_unknown_running_job_is_reported(apiserver):
    create(apiserver, "0 0 1 1 *")
    owner = apiserver.store.get(CRON_JOBS, "ns", "c")["metadata"]["uid"]
    reference = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": owner, "controller": True}
    create_job(apiserver, "manual", reference)
    await asyncio.sleep(1)
    assert set(reasons(apiserver)) == {"UnexpectedJob"}
    assert active(apiserver) == []


async def test_traces_of_a_job_lead_to_its_cron_job(fake_apiserver, start):
    records: list[ReconcileRecord] = []
    traces = ReconcileRecorder(
        clock=fake_apiserver.clock,
        rng=random.Random(1),
        annotates=True,
        on_finished=lambda record, sampled: records.append(record),
    )
    open_pods = OpenPodRecords(clock=fake_apiserver.clock)
    pods = standalone_pod_recorder(open_pods, rng=random.Random(2))
    context = replace(fake_apiserver.context, traces=traces, pod_traces=pods)
    await start(fake_apiserver.informers, CronJobController(context), JobController(context))
    create(fake_apiserver)
    await asyncio.sleep(MINUTE + 5)
    (job,) = fake_apiserver.objects(JOBS)
    created = next(record for record in records if record.controller == "cronjob")
    assert created.actions[0] == f"create job {job['metadata']['name']}"
    assert job["metadata"]["annotations"][TRACEPARENT_ANNOTATION] == created.context.traceparent
    started = next(record for record in records if record.controller == "job")
    assert [traceparent for traceparent, relation in started.links if relation == "cause"] == [
        created.context.traceparent
    ]
    (pod,) = open_pods.all()
    assert pod.owners == ["cronjob/c", f"job/{job['metadata']['name']}"]


async def test_reconcile_links_to_the_request_that_created_the_cron_job(fake_apiserver, start):
    records: list[ReconcileRecord] = []
    traces = ReconcileRecorder(
        clock=fake_apiserver.clock, rng=random.Random(1), on_finished=lambda record, sampled: records.append(record)
    )
    await start(fake_apiserver.informers, CronJobController(replace(fake_apiserver.context, traces=traces)))
    create_cron_job(fake_apiserver, "c", "* * * * *", annotations={TRACEPARENT_ANNOTATION: CAUSE})
    await asyncio.sleep(MINUTE + 5)
    assert [record.links for record in records] == [[(CAUSE, "cause")]]


async def test_cancelled_sync_writes_no_status(fake_apiserver, start):
    async def hang(request: SentRequest) -> None:
        if request.method == "POST" and request.path.endswith("/jobs") and fake_apiserver.written("DELETE"):
            await asyncio.Event().wait()

    fake_apiserver.transport.before_request = hang
    await start(fake_apiserver.informers)
    controller = asyncio.ensure_future(CronJobController(fake_apiserver.context).run())
    create(fake_apiserver, concurrencyPolicy="Replace")
    await asyncio.sleep(2 * MINUTE)
    assert fake_apiserver.names(JOBS) == []
    (listed,) = active(fake_apiserver)
    controller.cancel()
    await asyncio.wait([controller])
    assert active(fake_apiserver) == [listed]


async def test_created_jobs_are_counted_with_their_delay(apiserver):
    create(apiserver)
    await asyncio.sleep(3 * MINUTE)
    prefix = "cronjob_controller_job_creation_skew_duration_seconds"
    assert apiserver.metrics.values(prefix) == {"_count": 3}
