"""Scenarios of Jobs and CronJobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime
from typing import Any

from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.objects.resources import CRON_JOBS, JOBS, PODS
from kubeloop.testing.faults.fault_plan import FaultPlan, caches_are_current
from support.faults.cluster import Cluster
from support.faults.objects import (
    JSON,
    controller_of,
    is_finished,
    is_terminating,
    is_true,
    manifest,
    name_of,
    pod_template,
    uid_of,
)
from support.faults.scenario import Scenario, Step, create

JOB = ("job", "scheduler")


def job(name: str, *, exit_code: int = 0, **spec: Any) -> JSON:
    # also a pod that a user has created again, without the Job as its owner, must end
    annotations = {"run-seconds": "1", "exit-code": str(exit_code)}
    template = pod_template(name, annotations=annotations, restartPolicy="Never")
    return manifest(JOBS, name, spec={"template": template, **spec})


def _suspend(suspend: bool) -> Any:
    def act(cluster: Cluster) -> None:
        job = cluster.get(JOBS, "work")
        if job is not None and not is_true(job, "Complete"):
            cluster.patch(JOBS, "work", {"spec": {"suspend": suspend}})

    return act


class FinishedForever:
    """Counts of a Job never fall, and its end is final."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        cluster.store.subscribe(JOBS, self._on_job)

    def _on_job(self, change: Change) -> None:
        if change.before is None or change.type == "DELETED":
            return
        name, before, after = name_of(change.now.object), change.before.object, change.now.object
        for count in ("succeeded", "failed"):
            old, new = (job.get("status", {}).get(count, 0) for job in (before, after))
            if new < old:
                self._cluster.violate(f"{count} of Job {name} fell from {old} to {new}")
        for condition in ("Complete", "Failed"):
            if is_true(before, condition) and before["status"] != after["status"]:
                self._cluster.violate(f"the status of the finished Job {name} changed")


class CountedOnce:
    """Each ended pod of a Job is listed in the status once, keeps its finalizer until then, and counts once."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        self._checks = not plan.of_kind("old-lists")  # a pod may be released and counted, but not in an old list
        # a throttled write is decided long before it is sent
        self._checks_release = caches_are_current(plan) and not plan.of_kind("throttle")
        # "succeeded" or "failed", by UID of the Job and UID of the pod
        self._listed: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._ended_at: dict[str, datetime] = {}  # by UID of the pod
        cluster.store.subscribe(JOBS, self._on_job)
        cluster.store.subscribe(PODS, self._on_pod)

    def _on_job(self, change: Change) -> None:
        if change.before is None or change.type == "DELETED" or not self._checks:
            return
        owner, status = change.now.object, change.now.object.get("status", {})
        before, after = _uncounted(change.before.object), _uncounted(owner)
        tracked = {uid_of(pod) for pod in self._cluster.owned(PODS, owner) if _is_tracked(pod)}
        if early := tracked & (before.keys() - after.keys()):
            self._cluster.violate(f"pods {early} are counted before their finalizer is removed")
        listed = self._listed[uid_of(owner)]
        for uid, count in after.items() - before.items():
            if uid in listed:
                self._cluster.violate(f"the pod {uid} is counted as {listed[uid]} and then as {count}")
            listed[uid] = count
        failed = list(listed.values()).count("failed") - list(after.values()).count("failed")
        if status.get("failed", 0) != failed:
            self._cluster.violate(f"Job {name_of(owner)} has {status.get('failed', 0)} failed pods instead of {failed}")

    def _on_pod(self, change: Change) -> None:
        pod = change.now.object
        if is_finished(pod):
            self._ended_at.setdefault(uid_of(pod), self._cluster.clock.now())
        is_released = change.type == "DELETED" or not _is_tracked(pod)
        if self._checks_release and change.before is not None and _is_tracked(change.before.object) and is_released:
            self._check_release(pod)

    def _check_release(self, pod: JSON) -> None:
        """An ended pod that loses its finalizer is listed; a surplus one is not, before the cache shows its end."""
        ended_at = self._ended_at.get(uid_of(pod))
        owner = self._cluster.get(JOBS, controller_of(pod).get("name", ""))
        index = pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index")
        if ended_at is None or owner is None or uid_of(pod) in self._listed[uid_of(owner)]:
            return
        if index is not None and int(index) in _indexes(owner.get("status", {}).get("completedIndexes", "")):
            return
        seconds = (self._cluster.clock.now() - ended_at).total_seconds()
        if seconds > _STALE_SECONDS:
            self._cluster.violate(f"Pod {name_of(pod)} is not counted {seconds:g} s after its end")


_STALE_SECONDS = 10.0


def _is_tracked(pod: JSON) -> bool:
    return "batch.kubernetes.io/job-tracking" in pod["metadata"].get("finalizers", ())


def _uncounted(job: JSON) -> dict[str, str]:
    """Return "succeeded" or "failed" by UID of the pods that the status lists."""
    lists = job.get("status", {}).get("uncountedTerminatedPods") or {}
    return {uid: count for count in lists for uid in lists[count]}


def _indexes(text: str) -> set[int]:
    """Return the numbers in intervals such as "0,2-4"."""
    intervals = [interval.partition("-") for interval in text.split(",") if interval]
    return {number for first, _, last in intervals for number in range(int(first), int(last or first) + 1)}


class _OneAtATime:
    """With concurrencyPolicy Forbid, no two Jobs of a CronJob run at the same time."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self._cluster = cluster
        self._checks = caches_are_current(plan)  # the controller reads status.active from its cache, as in v1.36
        cluster.store.subscribe(JOBS, self._on_job)

    def _on_job(self, change: Change) -> None:
        running = [
            name_of(job)
            for job in self._cluster.all(JOBS)
            if controller_of(job) and not is_true(job, "Complete") and not is_terminating(job)
        ]
        if self._checks and change.type == "ADDED" and len(running) > 1:
            self._cluster.violate(f"Jobs {running} run at the same time")


def _cron_job(**spec: Any) -> JSON:
    template = job("tick", completions=1)["spec"]
    return manifest(
        CRON_JOBS,
        "tick",
        spec={
            "schedule": "* * * * *",
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 2,
            "jobTemplate": {"spec": template},
            **spec,
        },
    )


def _suspended(cluster: Cluster) -> list[str]:
    """The CronJob has a Job for each of at most two minutes, and none is active."""
    cron_job = cluster.get(CRON_JOBS, "tick")
    if cron_job is None:
        return []
    jobs = cluster.all(JOBS, lambda job: bool(controller_of(job)))
    problems = [f"{count} Jobs are named {name}" for name, count in Counter(map(name_of, jobs)).items() if count > 1]
    if len(jobs) > 2:
        problems.append(f"{len(jobs)} Jobs are left")
    if cron_job.get("status", {}).get("active"):
        problems.append("the CronJob has active Jobs")
    return problems


def _deleted_job(cluster: Cluster) -> list[str]:
    return [f"Job {name_of(job)} is not deleted" for job in cluster.all(JOBS) if name_of(job) == "expiring"]


SCENARIOS = (
    Scenario(
        "indexed job",
        JOB,
        (Step("create a Job", create(job("work", completions=4, parallelism=2, completionMode="Indexed"))),),
        invariants=(FinishedForever, CountedOnce),
    ),
    Scenario(
        "suspended job",
        JOB,
        (
            Step("create a Job", create(job("work", completions=5, parallelism=2))),
            Step("suspend it", _suspend(True), 3.0),
            Step("resume it", _suspend(False), 5.0),
        ),
        exact=(),
        invariants=(FinishedForever, CountedOnce),
    ),
    Scenario(
        "failing job",
        JOB,
        (Step("create a Job", create(job("work", exit_code=1, completions=2, backoffLimit=2))),),
        exact=(),
        invariants=(FinishedForever, CountedOnce),
    ),
    Scenario(
        "cronjob",
        ("cronjob", *JOB),
        (
            Step("create a CronJob", create(_cron_job())),
            Step("suspend it", create(_cron_job(suspend=True)), 200.0),
        ),
        exact=(),
        desired=_suspended,
        orphans=True,  # nothing collects the pods of deleted Jobs
        invariants=(FinishedForever, _OneAtATime),
    ),
    Scenario(
        "expiring job",
        ("ttl-after-finished", "garbagecollector", *JOB),
        (Step("create a Job", create(job("expiring", completions=2, parallelism=2, ttlSecondsAfterFinished=5))),),
        desired=_deleted_job,
        invariants=(FinishedForever, CountedOnce),
    ),
)
