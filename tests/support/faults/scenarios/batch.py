"""Scenarios of Jobs and CronJobs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.objects.resources import CRON_JOBS, JOBS
from support.faults.cluster import Cluster
from support.faults.fault_plan import FaultPlan, caches_are_current
from support.faults.objects import JSON, controller_of, is_terminating, is_true, manifest, name_of, pod_template
from support.faults.scenario import Scenario, Step, create

_JOB = ("job", "scheduler")


def _job(name: str, *, exit_code: int = 0, **spec: Any) -> JSON:
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


class _FinishedForever:
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
    job = _job("tick", completions=1)["spec"]
    return manifest(
        CRON_JOBS,
        "tick",
        spec={
            "schedule": "* * * * *",
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 2,
            "jobTemplate": {"spec": job},
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
        _JOB,
        (Step("create a Job", create(_job("work", completions=4, parallelism=2, completionMode="Indexed"))),),
        invariants=(_FinishedForever,),
    ),
    Scenario(
        "suspended job",
        _JOB,
        (
            Step("create a Job", create(_job("work", completions=5, parallelism=2))),
            Step("suspend it", _suspend(True), 3.0),
            Step("resume it", _suspend(False), 5.0),
        ),
        exact=(),
        invariants=(_FinishedForever,),
    ),
    Scenario(
        "failing job",
        _JOB,
        (Step("create a Job", create(_job("work", exit_code=1, completions=2, backoffLimit=2))),),
        exact=(),
        invariants=(_FinishedForever,),
    ),
    Scenario(
        "cronjob",
        ("cronjob", *_JOB),
        (
            Step("create a CronJob", create(_cron_job())),
            Step("suspend it", create(_cron_job(suspend=True)), 200.0),
        ),
        exact=(),
        desired=_suspended,
        orphans=True,  # nothing collects the pods of deleted Jobs
        invariants=(_FinishedForever, _OneAtATime),
    ),
    Scenario(
        "expiring job",
        ("ttl-after-finished", "garbagecollector", *_JOB),
        (Step("create a Job", create(_job("expiring", completions=2, parallelism=2, ttlSecondsAfterFinished=5))),),
        desired=_deleted_job,
    ),
)
