"""Writes of one sync, and where it continues after a failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.job import job_sync
from kubeloop.controllers.job.job_controller import JobController
from kubeloop.controllers.job.job_sync import BATCH_SECONDS, JobSync
from kubeloop.controllers.job.pod_plan import JobPodPlan
from kubeloop.kube.objects.api_types import Condition, Job, Pod, convert
from kubeloop.kube.objects.resources import JOBS, PODS
from support.apiserver.faulty_transport import SentRequest, WatchFault, injected_error
from support.objects.job_pods import TestedJob

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def controller(fake_apiserver, start):
    controller = JobController(fake_apiserver.context)
    await start(fake_apiserver.informers, controller)
    return controller


@pytest.fixture
def job(fake_apiserver, controller):
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


def status_bodies(job: TestedJob) -> list[dict[str, Any]]:
    return [body["status"] for _, path, body in job.server.requests if path.endswith("/status")]


async def test_first_status_after_deletions_counts_terminating_pods(job):
    job.create(parallelism=3)
    await asyncio.sleep(5)
    job.run()
    for name in job.unfinished:
        job.bind(name)
    await asyncio.sleep(5)
    before = len(status_bodies(job))
    job.change(parallelism=1)
    await asyncio.sleep(5)
    (status, *_) = status_bodies(job)[before:]
    assert (status["active"], status["ready"], status["terminating"]) == (1, 1, 2)


async def test_failed_pods_that_wait_for_replacement_leave_no_active_pod(job):
    job.create(parallelism=2, completions=2)
    await asyncio.sleep(5)
    job.fail(job.unfinished[0])
    await asyncio.sleep(3)
    assert job.status == {"failed": 1}, "as in kube-controller-manager, though one pod runs"
    await asyncio.sleep(10)
    assert job.status["active"] == 2


async def test_job_does_not_fail_while_its_pods_cannot_be_deleted(job):
    job.create(parallelism=2, completions=2, backoffLimit=0)
    await asyncio.sleep(5)
    failed, running = job.unfinished
    job.server.transport.reject = lambda method, path: injected_error(403) if method == "DELETE" else None
    job.fail(failed)
    await asyncio.sleep(30)
    assert job.status == {"active": 1, "failed": 1}, "no condition, as in kube-controller-manager"
    assert job.unfinished == [running]
    assert any(job.server.metrics.values("kubeloop_reconcile_errors").values())
    job.server.transport.reject = lambda method, path: None
    await asyncio.sleep(120)
    assert job.conditions[-1] == ("Failed", "BackoffLimitExceeded")
    assert job.unfinished == []


async def test_writes_are_expected_before_they_are_sent(job, controller):
    expectations, met = controller._records.expectations, []

    def record(request: SentRequest) -> None:
        if request.path.startswith(PODS.path("ns")) and request.method in ("POST", "DELETE"):
            met.append((request.method, expectations.met("ns/j")))

    job.server.transport.on_send = record
    job.create(parallelism=2)
    await asyncio.sleep(5)
    job.change(parallelism=1)
    await asyncio.sleep(5)
    assert met == [("POST", False)] * 2 + [("DELETE", False)]
    assert expectations.met("ns/j")


@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH"])
async def test_failed_writes_are_expected_no_longer(job, controller, method):
    """A Pod is deleted after its finalizer is removed by a PATCH."""
    job.create(parallelism=2)
    await asyncio.sleep(5)
    job.server.transport.reject = lambda sent, path: (
        injected_error(403) if sent == method and path.startswith(PODS.path("ns")) else None
    )
    job.change(parallelism=3 if method == "POST" else 1)
    await asyncio.sleep(2)
    assert controller._records.expectations.met("ns/j")
    assert len(job.unfinished) == 2


async def test_writes_are_recorded_for_the_check_of_stale_caches(job, controller, monkeypatch):
    written: dict[str, list[str]] = {}

    def record(owner: Any, resource: Any, obj: Any) -> None:
        written.setdefault(resource.plural, []).append(f"{owner.key} {obj.key} {obj.metadata.resource_version}")

    monkeypatch.setattr(controller._records.consistency, "wrote", record)
    job.create(completions=2, parallelism=2)
    await asyncio.sleep(5)
    created = [f"ns/j ns/{pod['metadata']['name']} {pod['metadata']['resourceVersion']}" for pod in job.pods]
    assert sorted(written["pods"]) == sorted(created)
    job.succeed(job.unfinished[0])
    await asyncio.sleep(5)
    (ended,) = [pod["metadata"] for pod in job.pods if "finalizers" not in pod["metadata"]]
    assert written["pods"][2:] == [f"ns/j ns/{ended['name']} {ended['resourceVersion']}"]
    stored = job.server.store.get(JOBS, "ns", "j")
    assert written["jobs"][-1] == f"ns/j ns/j {stored['metadata']['resourceVersion']}"


async def test_adopted_pod_is_tracked_and_recorded(job, controller, monkeypatch):
    written: list[str] = []
    wrote = controller._records.consistency.wrote

    def record(owner: Any, resource: Any, obj: Any) -> None:
        written.extend([obj.metadata.name] if resource is PODS else [])
        wrote(owner, resource, obj)

    monkeypatch.setattr(controller._records.consistency, "wrote", record)
    pod = {
        "metadata": {"name": "orphan", "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    job.server.api.create(PODS.path("ns"), pod)
    job.create(
        manualSelector=True,
        selector={"matchLabels": {"app": "x"}},
        template={
            "metadata": {"labels": {"app": "x"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        },
    )
    await asyncio.sleep(5)
    assert job.unfinished == ["orphan"]
    assert written == ["orphan"]
    assert job.pod("orphan")["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert job.status == {"active": 1}
    job.succeed()
    await asyncio.sleep(5)
    assert job.conditions[-1] == ("Complete", "CompletionsReached")
    assert "finalizers" not in job.pod("orphan")["metadata"]


@pytest.mark.parametrize(
    ("completions", "succeeded", "condition", "reasons"),
    [
        pytest.param(2, 2, "Complete", ["Completed"], id="as many as completions"),
        pytest.param(2, 3, "Complete", ["TooManySucceededPods", "Completed"], id="more than completions"),
        pytest.param(None, 3, "Complete", ["Completed"], id="no completions"),
        pytest.param(2, 1, "Failed", ["BackoffLimitExceeded"], id="failed"),
        pytest.param(2, 3, "Failed", ["BackoffLimitExceeded"], id="failed with more than completions"),
    ],
)
async def test_events_at_the_end_of_a_job(controller, fake_apiserver, completions, succeeded, condition, reasons):
    spec = {} if completions is None else {"completions": completions}
    body = {"metadata": {"name": "j", "namespace": "ns"}, "spec": spec, "status": {"succeeded": succeeded}}
    context = fake_apiserver.context
    sync = JobSync(
        convert(Job, body),
        context,
        controller._pod_control,
        controller._records,
        context.traces.reconcile("job", "ns/j"),
        controller._metrics,
    )
    final = Condition(type=condition, status="True", reason="BackoffLimitExceeded", message="it failed too often")
    sync._record_end(final)
    assert [event.reason for event in context.events.events] == reasons
    assert [event.type for event in context.events.events] == [
        "Normal" if reason == "Completed" else "Warning" for reason in reasons
    ]
