"""CronJobs under kube-controller-manager and under kubeloop: the same objects, events and order of writes.

See `support.comparison.compared_clusters`. The test makes runs due at once: it sets the last schedule time of a
CronJob to years ago. The schedules have one time a year or a week, so that no other run is due during the test.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from support.comparison.compared_clusters import JSON, ComparedCluster, assert_same_state, stable
from support.comparison.real_apiserver import RealApiServer

CRON_JOBS, JOBS = "/apis/batch/v1/namespaces/x/cronjobs", "/apis/batch/v1/namespaces/x/jobs"
NOW = datetime.now(UTC).replace(microsecond=0)
YEARS_AGO = (NOW - timedelta(days=1200)).isoformat().replace("+00:00", "Z")
_MINUTES = re.compile(r"-\d{8}(?!\d)")  # at the end of a Job's name

SPECS: dict[str, JSON] = {
    "allow": {"concurrencyPolicy": "Allow"},
    "forbid": {"concurrencyPolicy": "Forbid"},
    "replace": {"concurrencyPolicy": "Replace"},
    "suspended": {"suspend": True},
    "too-late": {"startingDeadlineSeconds": 100},
    "in-time": {"startingDeadlineSeconds": 366 * 86400},
    "time-zone": {"timeZone": "Asia/Tokyo"},
    "history": {"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0},
    "many-missed": {"schedule": "0 0 * * 0"},
    "never": {"schedule": "0 0 30 2 *"},
    "labeled": {
        "jobTemplate": {
            "metadata": {"labels": {"app": "report"}, "annotations": {"example.com/note": "nightly"}},
        }
    },
    "missing": {},
    "deleted": {},
    "taken": {},
    "manual": {},
}


def yearly(days_ago: int) -> str:
    """Return a schedule whose last time was at midnight some days ago."""
    day = NOW - timedelta(days=days_ago)
    return f"0 0 {day.day} {day.month} *"


class CronJobCluster(ComparedCluster):
    """User of one cluster, who also ends the Jobs."""

    def __init__(self, server: RealApiServer) -> None:
        super().__init__(server, (CRON_JOBS, JOBS))

    def run(self) -> JSON:
        self._create_taken_job()
        for name, spec in SPECS.items():
            template = spec.get("jobTemplate", {}) | {"spec": self._job_spec()}
            metadata = {"name": name, "finalizers": ["example.com/keep"] if name == "deleted" else []}
            body = {"metadata": metadata, "spec": {"schedule": yearly(30), **spec, "jobTemplate": template}}
            self.server.request("POST", CRON_JOBS, body)
        for step in (self._first, self._second, self._third, self._fourth):
            self.settle()
            step()
        self.settle()
        return self._state()

    def _first(self) -> None:
        self.server.request("DELETE", f"{CRON_JOBS}/deleted", {"propagationPolicy": "Background"})
        for name in SPECS:
            self.patch(f"{CRON_JOBS}/{name}/status", status={"lastScheduleTime": YEARS_AGO})

    def _second(self) -> None:
        for name in ("allow", "forbid", "replace"):
            self._make_due(name, 20)
        self.patch(f"{CRON_JOBS}/suspended", spec={"suspend": False})
        self.server.request("DELETE", f"{JOBS}/{self._jobs('missing')[0]}", {"propagationPolicy": "Background"})
        owner = self.server.request("GET", f"{CRON_JOBS}/manual")["metadata"]
        reference = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "manual", "uid": owner["uid"]}
        metadata = {"name": "by-hand", "ownerReferences": [{**reference, "controller": True}]}
        self.server.request("POST", JOBS, {"metadata": metadata, "spec": self._job_spec()})
        self._finish("history", "Complete")
        self._finish("labeled", "Failed")

    def _third(self) -> None:
        self._make_due("history", 20)
        self._finish("forbid", "Complete")
        self._finish("manual", "Complete")
        self._make_due("labeled", 20)

    def _fourth(self) -> None:
        self._finish("history", "Failed")
        self._finish("labeled", "Complete")
        self._finish("manual", "Complete")
        self._make_due("forbid", 10)

    # --- user and Job controller -------------------------------------------------------------------------------------

    def _create_taken_job(self) -> None:
        """Create a Job with the name of the one that the CronJob "taken" will have to create."""
        scheduled = (NOW - timedelta(days=30)).replace(hour=0, minute=0, second=0)
        metadata = {"name": f"taken-{int(scheduled.timestamp()) // 60}"}
        self.server.request("POST", JOBS, {"metadata": metadata, "spec": self._job_spec()})

    def _job_spec(self) -> JSON:
        pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}
        return {"template": {"spec": pod}}

    def _make_due(self, name: str, days_ago: int) -> None:
        """Change the schedule; the change of an annotation makes the controllers look at once."""
        self.patch(f"{CRON_JOBS}/{name}", spec={"schedule": yearly(days_ago)})
        self.patch(f"{CRON_JOBS}/{name}", metadata={"annotations": {"example.com/days": str(days_ago)}})

    def _jobs(self, owner: str) -> list[str]:
        """Return the names of the Jobs of a CronJob that have not finished."""
        return [
            job["metadata"]["name"]
            for job in self.objects(JOBS)
            if owner_of(job) == owner and not job.get("status", {}).get("conditions")
        ]

    def _finish(self, owner: str, condition: str) -> None:
        """End the first running Job of a CronJob as the Job controller does."""
        criterion = "SuccessCriteriaMet" if condition == "Complete" else "FailureTarget"
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [{"type": type_, "status": "True", "lastTransitionTime": now} for type_ in (criterion, condition)]
        status: JSON = {"startTime": now, "conditions": conditions}
        if condition == "Complete":
            status["completionTime"] = now
        self.patch(f"{JOBS}/{self._jobs(owner)[0]}/status", status=status)

    # --- comparison --------------------------------------------------------------------------------------------------

    def _state(self) -> JSON:
        # Both report a Job that they have deleted as missing if the cache shows that before their write of the status.
        events = [event for event in self.events() if "MissingJob" not in event or event.startswith("missing ")]
        return {
            "events": without_minutes(events),
            "cron_jobs": without_minutes([cron_job_fields(item) for item in self.objects(CRON_JOBS)]),
            "jobs": without_minutes(stable(self.objects(JOBS))),
            "writes": self._writes(),
        }

    def _writes(self) -> dict[str, list[str]]:
        """Return the changes of each CronJob's status, and the creation and deletion of its Jobs, in their order."""
        changes: list[tuple[int, str, str]] = []
        for type_, job in self.versions(JOBS):
            if type_ != "MODIFIED":
                changes.append((_version(job), owner_of(job), f"job {job['metadata']['name']} {type_}"))
        last: dict[str, Any] = {}
        for _, cron_job in self.versions(CRON_JOBS):
            name, status = cron_job["metadata"]["name"], cron_job_fields(cron_job).get("status", {})
            if status != last.get(name, {}):
                changes.append((_version(cron_job), name, f"status {status}"))
            last[name] = status
        writes: dict[str, list[str]] = {}
        for _, name, text in sorted(changes):
            writes.setdefault(name, []).append(without_minutes(text))
        return writes


def owner_of(job: JSON) -> str:
    """Return the name of the CronJob that owns a Job; "" for none."""
    return next((owner["name"] for owner in job["metadata"].get("ownerReferences", ())), "")


def cron_job_fields(cron_job: JSON) -> JSON:
    fields: JSON = stable(cron_job)
    if "lastSuccessfulTime" in fields.get("status", {}):
        fields["status"]["lastSuccessfulTime"] = "set"
    return fields


def without_minutes(value: Any) -> Any:
    """Return the value with "-MINUTES" for the scheduled time in names: the days of the test change."""
    if isinstance(value, dict):
        return {name: without_minutes(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_minutes(item) for item in value]
    return _MINUTES.sub("-MINUTES", value) if isinstance(value, str) else value


def _version(obj: JSON) -> int:
    return int(obj["metadata"]["resourceVersion"])


def test_cron_jobs_match_kubernetes(tmp_path):
    controllers = ("cronjob-controller", "cronjob")
    state = assert_same_state(tmp_path, controllers, lambda server: CronJobCluster(server).run())
    reasons = {event.split()[2].rstrip(":") for event in state["events"]}
    assert reasons >= {
        *("SuccessfulCreate", "SuccessfulDelete", "SawCompletedJob", "JobAlreadyActive", "UnexpectedJob"),
        *("MissingJob", "TooManyMissedTimes", "InvalidSchedule"),
    }
    assert len(state["writes"]["too-late"]) == 1, "only the status that the test has set"
