"""The Job controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.controllers.job.job_controller import JobController
from kubeloop.controllers.job.job_sync import BATCH_SECONDS
from kubeloop.devcluster.api import errors
from kubeloop.kube.errors import Forbidden
from kubeloop.kube.objects.api_types import Job, Pod, convert
from kubeloop.kube.objects.resources import JOBS, PODS
from support.apiserver.faulty_transport import SentRequest, WatchFault
from support.comparison import replay_server
from support.objects.job_pods import TestedJob
from support.simulation.set_clock import SetClock

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


async def test_work_queue_ends_when_one_pod_succeeds_and_all_have_ended(job):
    job.create(parallelism=3)
    await asyncio.sleep(SYNCED)
    first, *others = job.unfinished
    job.succeed(first)
    await asyncio.sleep(SYNCED)
    assert job.status == {"active": 2, "succeeded": 1}
    job.fail(others[0])
    await asyncio.sleep(SYNCED)
    assert len(job.unfinished) == 1
    job.succeed(others[1])
    await asyncio.sleep(SYNCED)
    assert job.status["failed"] == 1
    assert job.conditions[-1] == ("Complete", "CompletionsReached")


async def test_indexed_job_runs_each_index_once(job):
    job.create(completions=4, parallelism=3, completionMode="Indexed")
    await asyncio.sleep(SYNCED)
    assert job.indexes == [0, 1, 2]
    job.succeed(job.pod_of_index(1))
    await asyncio.sleep(SYNCED)
    assert job.indexes == [0, 2, 3]
    assert job.status == {"active": 3, "succeeded": 1, "completedIndexes": "1"}
    job.succeed()
    await asyncio.sleep(SYNCED)
    assert job.status["completedIndexes"] == "0-3"
    assert job.conditions[-1] == ("Complete", "CompletionsReached")


async def test_deletion_of_a_pod_that_is_gone_succeeds(fake_apiserver, job):
    job.create(completions=2, parallelism=2)
    await asyncio.sleep(SYNCED)

    def delete_first(request: SentRequest) -> None:
        if request.method == "DELETE":
            fake_apiserver.store.delete(PODS, "ns", request.path.rpartition("/")[2])

    fake_apiserver.transport.on_send = delete_first
    job.change(parallelism=1)
    await asyncio.sleep(SYNCED)
    assert len(job.unfinished) == 1
    assert not any(fake_apiserver.metrics.values("kubeloop_reconcile_errors").values())


async def test_failed_pods_are_replaced_after_an_exponential_backoff(job):
    job.create()
    await asyncio.sleep(SYNCED)
    for backoff in (10, 20, 40):
        job.fail()
        await asyncio.sleep(backoff - 1)
        assert not job.unfinished
        await asyncio.sleep(3)
        assert len(job.unfinished) == 1
    assert job.status == {"active": 1, "failed": 3}


async def test_backoff_limit_fails_the_job_and_deletes_its_pods(job):
    job.create(parallelism=3, completions=3, backoffLimit=1)
    await asyncio.sleep(SYNCED)
    first, second, _ = job.unfinished
    job.fail(first, second)
    await asyncio.sleep(SYNCED)
    assert job.conditions == [("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded")]
    assert job.status["failed"] == 3
    assert not job.unfinished
    assert job.events.count("SuccessfulDelete") == 1
    assert job.events[-1] == "BackoffLimitExceeded"


async def test_job_finishes_only_when_its_pods_have_terminated(job):
    job.create(parallelism=2, completions=2, backoffLimit=0)
    await asyncio.sleep(SYNCED)
    failed, slow = job.unfinished
    job.bind(slow)
    job.fail(failed)
    await asyncio.sleep(SYNCED)
    assert job.status["terminating"] == 1
    assert job.conditions == [("FailureTarget", "BackoffLimitExceeded")]
    job.remove(slow)
    await asyncio.sleep(SYNCED)
    assert job.conditions[-1] == ("Failed", "BackoffLimitExceeded")


async def test_active_deadline_fails_the_job(job):
    job.create(activeDeadlineSeconds=30)
    await asyncio.sleep(29)
    assert not job.conditions
    await asyncio.sleep(SYNCED)
    assert job.conditions[-1] == ("Failed", "DeadlineExceeded")


async def test_suspended_job_deletes_its_pods_and_resumes(job):
    job.create(parallelism=2, completions=2, activeDeadlineSeconds=60)
    await asyncio.sleep(SYNCED)
    job.change(suspend=True)
    await asyncio.sleep(SYNCED)
    assert not job.pods
    assert job.status == {"conditions": [("Suspended", "JobSuspended")]}
    assert job.start_time is None
    await asyncio.sleep(120)
    job.change(suspend=False)
    await asyncio.sleep(SYNCED)
    assert len(job.unfinished) == 2
    assert not job.conditions
    assert job.start_time is not None
    assert [reason for reason in job.events if reason in ("Suspended", "Resumed")] == ["Suspended", "Resumed"]


async def test_backoff_limit_per_index_fails_single_indexes(job):
    job.create(completions=3, parallelism=3, completionMode="Indexed", backoffLimitPerIndex=1)
    await asyncio.sleep(SYNCED)
    job.succeed(job.pod_of_index(0))
    job.fail(job.pod_of_index(1))
    await asyncio.sleep(15)
    assert job.indexes == [1, 2]
    (count,) = (
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"]
        for pod in job.pods
        if pod["metadata"]["name"] == job.pod_of_index(1)
    )
    assert count == "1"
    job.fail(job.pod_of_index(1))
    await asyncio.sleep(SYNCED)
    assert job.status == {"active": 1, "succeeded": 1, "failed": 2, "completedIndexes": "0", "failedIndexes": "1"}
    job.succeed()
    await asyncio.sleep(SYNCED)
    assert job.conditions[-1] == ("Failed", "FailedIndexes")
    assert job.status["completedIndexes"] == "0,2"


async def test_max_failed_indexes_ends_the_job(job):
    job.create(completions=9, parallelism=3, completionMode="Indexed", backoffLimitPerIndex=0, maxFailedIndexes=1)
    await asyncio.sleep(SYNCED)
    job.fail(job.pod_of_index(0), job.pod_of_index(1))
    await asyncio.sleep(SYNCED)
    assert job.conditions[-1] == ("Failed", "MaxFailedIndexesExceeded")
    assert job.status["failedIndexes"] == "0,1"
    assert not job.unfinished


@pytest.mark.parametrize(
    ("action", "failed", "condition"),
    [
        pytest.param("FailJob", 2, ("Failed", "PodFailurePolicy"), id="fail the job"),
        pytest.param("Ignore", 0, None, id="ignore"),
        pytest.param("Count", 1, None, id="count"),
    ],
)
async def test_pod_failure_policy(job, action, failed, condition):
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": [42]}}
    job.create(parallelism=2, completions=2, podFailurePolicy={"rules": [rule]})
    await asyncio.sleep(SYNCED)
    job.fail(job.unfinished[0], exit_code=42)
    await asyncio.sleep(15)
    assert job.status.get("failed", 0) == failed
    assert (job.conditions[-1] if job.conditions else None) == condition
    assert len(job.unfinished) == (0 if condition else 2)


async def test_success_policy_ends_the_job_early(job):
    policy = {"rules": [{"succeededIndexes": "0"}]}
    job.create(completions=3, parallelism=3, completionMode="Indexed", successPolicy=policy)
    await asyncio.sleep(SYNCED)
    job.succeed(job.pod_of_index(0))
    await asyncio.sleep(SYNCED)
    assert job.conditions == [("SuccessCriteriaMet", "SuccessPolicy"), ("Complete", "SuccessPolicy")]
    assert job.status == {"succeeded": 1, "completedIndexes": "0", "conditions": job.conditions}
    assert not job.unfinished


@pytest.mark.parametrize(("policy", "replaced"), [("TerminatingOrFailed", True), ("Failed", False)])
async def test_terminating_pods_are_replaced_by_policy(job, policy, replaced):
    job.create(podReplacementPolicy=policy)
    await asyncio.sleep(SYNCED)
    (name,) = job.unfinished
    job.bind(name)
    job.run()
    job.delete(name)
    await asyncio.sleep(20)
    assert bool(job.unfinished) == replaced
    assert job.status.get("terminating", 0) == 1
    job.fail(name)
    await asyncio.sleep(20)
    assert len(job.unfinished) == 1
    assert job.status["failed"] == 1


async def test_parallelism_can_change(job):
    job.create(parallelism=1, completions=9)
    await asyncio.sleep(SYNCED)
    job.change(parallelism=4)
    await asyncio.sleep(SYNCED)
    assert len(job.unfinished) == 4
    job.change(parallelism=2)
    await asyncio.sleep(SYNCED)
    assert len(job.unfinished) == 2
    assert job.status == {"active": 2}


async def test_job_of_another_controller_is_left_alone(job):
    job.create(managedBy="example.com/queue")
    await asyncio.sleep(SYNCED)
    assert not job.pods
    assert not job.server.requests


async def test_orphan_is_adopted_with_the_finalizer_and_released(job):
    job.create(parallelism=2, completions=2)
    await asyncio.sleep(SYNCED)
    name = job.unfinished[0]
    job.patch_pod(name, {"ownerReferences": None})
    await asyncio.sleep(SYNCED)
    pod = job.pod(name)
    assert pod["metadata"]["ownerReferences"][0]["name"] == "j"
    assert pod["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    job.patch_pod(name, {"labels": None})
    await asyncio.sleep(SYNCED)
    assert "ownerReferences" not in job.pod(name)["metadata"]
    assert "finalizers" not in job.pod(name)["metadata"]
    assert len(job.unfinished) == 3


async def test_no_finalizer_is_left_when_the_job_is_deleted(job):
    job.create(parallelism=2, completions=2)
    await asyncio.sleep(SYNCED)
    job.succeed(job.unfinished[0])
    job.server.delete(JOBS, "j")
    await asyncio.sleep(SYNCED)
    assert all("finalizers" not in pod["metadata"] for pod in job.pods)


async def test_pods_are_deleted_with_their_job_in_the_foreground(job):
    job.create(parallelism=2, completions=2)
    await asyncio.sleep(SYNCED)
    job.server.delete(JOBS, "j", "Foreground")
    for name in job.unfinished:
        job.delete(name)
    await asyncio.sleep(SYNCED)
    assert not job.pods
    assert not job.unfinished


async def test_pod_without_owner_loses_its_finalizer(job):
    job.server.add(PODS, "stray", finalizers=["batch.kubernetes.io/job-tracking"])
    await asyncio.sleep(SYNCED)
    assert "finalizers" not in job.pod("stray")["metadata"]


async def test_job_of_an_unknown_completion_mode_has_an_event_and_no_pods(job):
    job.create(suspend=True)
    await asyncio.sleep(SYNCED)
    stored = job.server.store.get(JOBS, "ns", "j")
    generation = stored["metadata"]["generation"] + 1
    spec = {**stored["spec"], "completionMode": "Newer", "suspend": False}
    job.server.store.update(
        JOBS, {**stored, "metadata": {**stored["metadata"], "generation": generation}, "spec": spec}
    )
    await asyncio.sleep(SYNCED)
    assert job.events[-1] == "UnknownCompletionMode"
    assert job.pods == []


async def test_job_that_is_created_again_under_its_name_gets_pods_of_its_own(job):
    job.create()
    await asyncio.sleep(SYNCED)
    (old,) = job.unfinished
    job.server.transport.watch_delay_seconds = 1.0
    job.server.store.delete(JOBS, "ns", "j")
    job.create()
    await asyncio.sleep(SYNCED)
    job.server.transport.watch_delay_seconds = 0.0
    await asyncio.sleep(SYNCED)
    (new,) = (name for name in job.unfinished if name != old)
    uid = job.server.store.get(JOBS, "ns", "j")["metadata"]["uid"]
    assert job.pod(new)["metadata"]["ownerReferences"][0]["uid"] == uid
    assert "finalizers" not in job.pod(old)["metadata"]


async def test_orphan_that_is_gone_needs_no_removal_of_its_finalizer(job):
    job.create()
    await asyncio.sleep(SYNCED)
    (name,) = job.unfinished
    removals = []

    def delete_first(request: SentRequest) -> None:
        if (request.method, request.path) == ("PATCH", PODS.path("ns", name)):
            removals.append(request)
            job.server.store.delete(PODS, "ns", name)

    job.server.transport.on_send = delete_first
    job.server.store.delete(JOBS, "ns", "j")
    await asyncio.sleep(60)
    assert len(removals) == 1
    assert not any(job.server.metrics.values("kubeloop_reconcile_errors").values())


async def test_job_with_a_pod_of_unknown_owner_kind_keeps_its_finalizer(job):
    owner = {"apiVersion": "example.com/v1", "kind": "Job", "name": "x", "uid": "u", "controller": True}
    job.server.add(PODS, "foreign", owner, finalizers=["batch.kubernetes.io/job-tracking"])
    await asyncio.sleep(SYNCED)
    job.delete("foreign")
    await asyncio.sleep(SYNCED)
    assert job.pod("foreign")["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]


async def test_large_job_is_counted_in_parts(job):
    job.create(parallelism=700, completions=700)
    await asyncio.sleep(30)
    assert len(job.unfinished) == 700
    job.succeed()
    await asyncio.sleep(60)
    assert job.status["succeeded"] == 700
    assert job.conditions[-1] == ("Complete", "CompletionsReached")


async def test_job_created_again_is_not_delayed_by_expectations_of_the_former(job):
    transport = job.server.transport
    transport.watch_faults.append(WatchFault("silence", resource="pods"))
    transport.break_watches("pods")
    await asyncio.sleep(SYNCED)
    job.create()
    await asyncio.sleep(SYNCED)
    assert len(job.pods) == 1  # which the cache does not show
    transport.break_watches("jobs")
    job.server.delete(JOBS, "j")
    job.create()
    transport.compacted_version = job.server.store.revision  # the relist shows a Job with another UID
    await asyncio.sleep(SYNCED)
    assert len(job.pods) == 2


# --- events ----------------------------------------------------------------------------------------------------------


def job_version(uid: str = "u", *, generation: int = 1, version: str = "1", finished: bool = False) -> Job:
    metadata = {"name": "job", "namespace": "ns", "uid": uid, "generation": generation, "resourceVersion": version}
    conditions = [{"type": "Complete", "status": "True"}] if finished else []
    return convert(Job, {"kind": "Job", "metadata": metadata, "status": {"conditions": conditions}})


@pytest.mark.parametrize(
    ("verb", "job", "calls"),
    [
        pytest.param("DELETED", job_version(), ["ns/job"], id="deleted"),
        pytest.param("MODIFIED", job_version(generation=2, version="2"), ["ns/job"], id="new spec"),
        pytest.param("MODIFIED", job_version(version="2"), [("ns/job", BATCH_SECONDS)], id="new status: later"),
        pytest.param("MODIFIED", job_version(version="2", finished=True), ["ns/job"], id="finished"),
        pytest.param("MODIFIED", job_version("v", version="2"), ["ns/job", "ns/job"], id="created again"),
    ],
)
async def test_job_event_enqueues_the_job(verb, job, calls):
    queue = replay_server.RecordingQueue()
    api = replay_server.ReplayServer({"state": {}})
    context = replay_server.replay_context(api, SetClock(datetime(2026, 1, 1, tzinfo=UTC)), queue)
    controller = JobController(context)
    jobs = context.informers.informer(JOBS)
    jobs.apply("ADDED", job_version(), 0)
    assert [call["key"] for call in queue.calls] == ["ns/job"]
    controller._records.expectations.expect_creations("ns/job", 1)
    queue.calls.clear()
    jobs.apply(verb, job, 0)
    added = [(call["key"], call["after_seconds"]) if "after_seconds" in call else call["key"] for call in queue.calls]
    assert added == calls
    assert controller._records.expectations.met("ns/job") is (verb == "DELETED" or job.metadata.uid == "v")


@pytest.mark.parametrize(("refused", "met"), [(False, False), (True, True)])
async def test_creations_are_expected_unless_they_fail(fake_apiserver, refused, met):
    """The events of created Pods are not delivered here."""
    controller = JobController(fake_apiserver.context)
    if refused:
        fake_apiserver.transport.reject = lambda method, path: (
            errors.forbidden(PODS, "", "no") if method == "POST" and path.endswith("/pods") else None
        )
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}}
    body = {"metadata": {"name": "job"}, "spec": {"template": template, "parallelism": 3, "completions": 3}}
    fake_apiserver.api.create(JOBS.path("ns"), body)
    job = await fake_apiserver.client.get(JOBS, "job", "ns")
    controller._jobs.put(job.key, job)
    with pytest.raises(Forbidden) if refused else nullcontext():
        await controller.reconcile(job.key)
    assert controller._records.expectations.met(job.key) is met
    expected = controller._records.expectations._expected[job.key]
    assert expected.creations == (0 if refused else 3)


def pod_version(
    version: str = "1", *, owner: str = "u", deleted: bool = False, tracked: bool = True, **labels: str
) -> Pod:
    """Return a Pod whose controller is the Job with the UID `owner`. owner: "" for an orphan."""
    metadata: dict[str, Any] = {"name": "p", "namespace": "ns", "uid": "pod", "resourceVersion": version}
    metadata["labels"] = labels
    if owner:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": owner, "controller": True}
        metadata["ownerReferences"] = [reference]
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if tracked:
        metadata["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    return convert(Pod, {"metadata": metadata})


LATER, ORPHAN = ("ns/job", BATCH_SECONDS), "ns/p"


@pytest.mark.parametrize(
    ("verb", "old", "new", "finished", "calls", "creations", "deletions", "released"),
    [
        pytest.param("ADDED", None, pod_version(), False, [LATER], 1, 1, False, id="created"),
        pytest.param("ADDED", None, pod_version(owner="gone"), False, [], 2, 1, False, id="created for another"),
        pytest.param("ADDED", None, pod_version(owner=""), False, [ORPHAN], 2, 1, False, id="orphan"),
        pytest.param(
            "ADDED", None, pod_version(deleted=True), False, [LATER], 2, 0, False, id="first seen terminating"
        ),
        pytest.param("MODIFIED", pod_version(), pod_version("2", phase="x"), False, [LATER], 2, 1, False, id="changed"),
        pytest.param("MODIFIED", pod_version(), pod_version(), False, [], 2, 1, False, id="resync"),
        pytest.param(
            "MODIFIED", pod_version(), pod_version("2", deleted=True), False, [LATER], 2, 0, False, id="terminates"
        ),
        pytest.param(
            "MODIFIED",
            pod_version(),
            pod_version("2", deleted=True, tracked=False),
            False,
            [LATER],
            2,
            0,
            True,
            id="terminates without finalizer",
        ),
        pytest.param(
            "MODIFIED", pod_version(), pod_version("2", tracked=False), False, [LATER], 2, 1, True, id="released"
        ),
        pytest.param(
            "MODIFIED",
            pod_version(),
            pod_version("2", owner="", tracked=False),
            False,
            [LATER],
            2,
            1,
            True,
            id="released and orphaned",
        ),
        pytest.param(
            "MODIFIED", pod_version(), pod_version("2", owner=""), False, [LATER, ORPHAN], 2, 1, False, id="orphaned"
        ),
        pytest.param(
            "MODIFIED", pod_version(), pod_version("2", deleted=True), True, [ORPHAN], 2, 1, False, id="job finished"
        ),
        pytest.param("DELETED", pod_version(), pod_version("2"), False, [LATER], 2, 0, True, id="deleted"),
        pytest.param("DELETED", pod_version(), pod_version("2"), True, [ORPHAN], 2, 1, False, id="deleted, finished"),
        pytest.param(
            "DELETED", pod_version(owner=""), pod_version("2", owner=""), False, [ORPHAN], 2, 1, False, id="lost"
        ),
        pytest.param(
            "DELETED",
            pod_version(owner="gone"),
            pod_version("2", owner="gone"),
            False,
            [ORPHAN],
            2,
            1,
            False,
            id="deleted after its job",
        ),
    ],
)
async def test_pod_event(verb, old, new, finished, calls, creations, deletions, released):
    """Two creations, the deletion and the release of the Pod are expected before."""
    queue, api = replay_server.RecordingQueue(), replay_server.ReplayServer({"state": {}})
    context = replay_server.replay_context(api, SetClock(datetime(2026, 1, 1, tzinfo=UTC)), queue)
    controller = JobController(context)
    context.informers.informer(JOBS).apply("ADDED", job_version(finished=finished), 0)
    pods = context.informers.informer(PODS)
    if old is not None:
        pods.apply("ADDED", old, 0)
    records = controller._records
    records.expectations.forget("ns/job")
    records.expectations.expect("ns/job", 2, ["ns/p"])
    records.released.expect("ns/job", ["pod"])
    queue.calls.clear()
    pods.apply(verb, new, 0)
    assert [
        (call["key"], call["after_seconds"]) if "after_seconds" in call else call["key"] for call in queue.calls
    ] == calls
    expected = records.expectations._expected["ns/job"]
    assert (expected.creations, expected.deletions) == (creations, deletions)
    assert records.released.pending("ns/job") == (set() if released else {"pod"})


async def test_job_that_ends_or_is_replaced_leaves_orphans():
    queue, api = replay_server.RecordingQueue(), replay_server.ReplayServer({"state": {}})
    context = replay_server.replay_context(api, SetClock(datetime(2026, 1, 1, tzinfo=UTC)), queue)
    JobController(context)
    jobs = context.informers.informer(JOBS)
    jobs.apply("ADDED", job_version(), 0)
    context.informers.informer(PODS).apply("ADDED", pod_version(), 0)
    for verb, job, keys in (
        ("MODIFIED", job_version(version="2", generation=2), ["ns/job"]),
        ("MODIFIED", job_version(version="3", generation=2, finished=True), [ORPHAN, "ns/job"]),
        ("MODIFIED", job_version("other", version="4"), [ORPHAN, "ns/job"]),
        ("DELETED", job_version("other", version="5"), ["ns/job"]),
    ):
        queue.calls.clear()
        jobs.apply(verb, job, 0)
        assert [call["key"] for call in queue.calls][: len(keys)] == keys
