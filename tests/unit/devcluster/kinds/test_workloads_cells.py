"""Cells of Deployments, Jobs, CronJobs, ControllerRevisions, PodDisruptionBudgets and HorizontalPodAutoscalers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from support.objects.kinds import cells_of

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
TEMPLATE = {"spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]}}
SELECTOR = {"matchLabels": {"app": "web"}}


def cells(resource: str, *, metadata: dict[str, Any] | None = None, **fields: Any) -> list[Any]:
    complete = {"name": "x", "creationTimestamp": "2026-05-01T11:55:00Z", **(metadata or {})}
    return cells_of(resource, {"metadata": complete, **fields}, NOW)


def test_deployment_shows_ready_of_desired_replicas():
    spec = {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE}
    status = {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}
    row = cells("deployments.apps", spec=spec, status=status)
    assert row == ["x", "1/3", 2, 1, "5m", "web", "nginx:1.27", "app=web"]


def true_conditions(*types: str) -> list[dict[str, str]]:
    return [{"type": condition_type, "status": "True"} for condition_type in types]


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ((), "Running"),
        (("Suspended",), "Suspended"),
        (("FailureTarget",), "FailureTarget"),
        (("FailureTarget", "Failed"), "Failed"),
        (("SuccessCriteriaMet", "Complete"), "Complete"),
    ],
)
def test_job_status_follows_its_conditions(conditions, status):
    assert cells("jobs.batch", status={"conditions": true_conditions(*conditions)})[1] == status


def test_job_in_deletion_is_terminating_unless_finished():
    deleted = {"deletionTimestamp": "2026-05-01T11:59:00Z"}
    assert cells("jobs.batch", metadata=deleted)[1] == "Terminating"
    assert cells("jobs.batch", metadata=deleted, status={"conditions": true_conditions("Failed")})[1] == "Failed"


@pytest.mark.parametrize(
    ("spec", "completions"),
    [
        ({"completions": 5, "parallelism": 2}, "1/5"),
        ({"parallelism": 2}, "1/1 of 2"),
        ({"parallelism": 1}, "1/1"),
    ],
)
def test_job_completions_depend_on_the_spec(spec, completions):
    assert cells("jobs.batch", spec=spec, status={"succeeded": 1})[2] == completions


def test_job_duration_ends_at_its_completion():
    started = {"startTime": "2026-05-01T11:56:00Z"}
    assert cells("jobs.batch", status=started)[3] == "4m"
    assert cells("jobs.batch", status={**started, "completionTime": "2026-05-01T11:56:30Z"})[3] == "30s"
    assert cells("jobs.batch")[3] == ""


def test_cron_job_shows_schedule_and_active_jobs():
    spec = {"schedule": "*/5 * * * *", "suspend": False, "jobTemplate": {"spec": {"template": TEMPLATE}}}
    status = {"active": [{"name": "a"}], "lastScheduleTime": "2026-05-01T11:59:30Z"}
    row = cells("cronjobs.batch", spec=spec, status=status)
    assert row == ["x", "*/5 * * * *", "<none>", "False", 1, "30s", "5m", "web", "nginx:1.27", "<none>"]


def test_controller_revision_shows_its_controller_with_group():
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True}
    row = cells("controllerrevisions.apps", metadata={"ownerReferences": [owner]}, revision=4)
    assert row == ["x", "statefulset.apps/db", 4, "5m"]
    assert cells("controllerrevisions.apps", metadata={"ownerReferences": [{**owner, "controller": False}]})[1] == (
        "<none>"
    )


def test_disruption_budget_shows_zero_limit_as_a_limit():
    row = cells("poddisruptionbudgets.policy", spec={"maxUnavailable": 0}, status={"disruptionsAllowed": 0})
    assert row == ["x", "N/A", "0", 0, "5m"]


def test_autoscaler_shows_two_targets_and_the_rest_as_number():
    metrics = [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
        {"type": "Pods", "pods": {"target": {"averageValue": "100"}}},
        {"type": "Object", "object": {"target": {"value": "5"}}},
    ]
    current = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 35}}}]
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "metrics": metrics, "maxReplicas": 9}
    row = cells("horizontalpodautoscalers.autoscaling", spec=spec, status={"currentMetrics": current})
    assert row == ["x", "Deployment/web", "cpu: 35%/80%, <unknown>/100 + 1 more...", "<unset>", 9, 0, "5m"]
