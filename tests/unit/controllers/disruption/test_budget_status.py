"""Status of PodDisruptionBudgets: pure functions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.controllers.disruption.budget_status import (
    budget_status,
    desired_healthy,
    healthy_count,
    overdue_disruptions,
    pending_disruptions,
    stale_disruption_seconds,
    status_json,
)
from kubeloop.kube.objects.api_types import (
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    convert,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(name: str = "web", *, phase: str = "Running", terminating: bool = False, **condition: Any) -> Pod:
    conditions = [{"type": "Ready", "status": "True"}]
    if condition:
        conditions.append({"type": "DisruptionTarget", **condition})
    metadata = {"name": name, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if terminating else {})}
    return convert(Pod, {"metadata": metadata, "status": {"phase": phase, "conditions": conditions}})


@pytest.mark.parametrize(
    ("spec", "desired"),
    [
        pytest.param(PodDisruptionBudgetSpec(min_available=3), 3, id="minAvailable"),
        pytest.param(PodDisruptionBudgetSpec(min_available="25%"), 3, id="percentage, rounded up"),
        pytest.param(PodDisruptionBudgetSpec(max_unavailable="25%"), 7, id="maxUnavailable"),
        pytest.param(PodDisruptionBudgetSpec(max_unavailable=11), 0, id="more than there are"),
        pytest.param(PodDisruptionBudgetSpec(), 0, id="neither"),
    ],
)
def test_desired_healthy_of_ten_pods(spec, desired):
    assert desired_healthy(PodDisruptionBudget(spec=spec), 10) == desired


def test_disruptions_are_pending_until_the_deletion_or_the_timeout():
    times = {name: NOW - timedelta(seconds=90) for name in ("pending", "terminating", "gone")}
    times["overdue"] = NOW - timedelta(seconds=121)
    budget = PodDisruptionBudget(status=PodDisruptionBudgetStatus(disrupted_pods=times))
    pods = [pod("pending"), pod("terminating", terminating=True), pod("overdue"), pod("healthy")]
    pending = pending_disruptions(budget, pods, NOW)
    assert pending == {"pending": times["pending"]}
    assert [it.metadata.name for it in overdue_disruptions(budget, pods, NOW)] == ["overdue"]
    assert healthy_count(pods, pending) == 2


def test_status_json_removes_pods_that_are_no_longer_disrupted():
    old = PodDisruptionBudgetStatus(disrupted_pods={"a": NOW, "b": NOW})
    patch = status_json(old, PodDisruptionBudgetStatus(disrupted_pods={"b": NOW}))
    assert patch["disruptedPods"] == {"a": None, "b": "2026-01-01T12:00:00Z"}
    assert patch["disruptionsAllowed"] == 0
    assert status_json(old, PodDisruptionBudgetStatus())["disruptedPods"] is None


@pytest.mark.parametrize(
    ("disrupted", "seconds"),
    [
        pytest.param(pod(), None, id="no condition"),
        pytest.param(pod(status="True", lastTransitionTime="2026-01-01T11:59:00Z"), 60.0, id="one minute old"),
        pytest.param(pod(status="True", lastTransitionTime="2026-01-01T11:00:00Z"), 0.0, id="stale"),
        pytest.param(pod(status="False", lastTransitionTime="2026-01-01T11:00:00Z"), None, id="reset"),
        pytest.param(
            pod(status="True", reason="TerminationByKubelet", lastTransitionTime="2026-01-01T11:00:00Z"),
            None,
            id="of the kubelet",
        ),
        pytest.param(
            pod(phase="Failed", status="True", lastTransitionTime="2026-01-01T11:00:00Z"), None, id="finished"
        ),
        pytest.param(
            pod(terminating=True, status="True", lastTransitionTime="2026-01-01T11:00:00Z"), None, id="terminating"
        ),
    ],
)
def test_stale_disruption_seconds(disrupted, seconds):
    assert stale_disruption_seconds(disrupted, NOW) == seconds


@pytest.mark.parametrize(
    ("healthy", "desired", "expected", "allowed", "reason"),
    [
        pytest.param(3, 2, 3, 1, "SufficientPods", id="one more than desired"),
        pytest.param(2, 2, 3, 0, "InsufficientPods", id="as many as desired"),
        pytest.param(1, 2, 3, 0, "InsufficientPods", id="fewer than desired"),
        pytest.param(1, 0, 1, 1, "SufficientPods", id="one expected pod"),
        pytest.param(5, 2, 3, 3, "SufficientPods", id="more pods than expected"),
        pytest.param(3, 0, 0, 0, "InsufficientPods", id="no expected pods"),
        pytest.param(0, 0, 3, 0, "InsufficientPods", id="no healthy pods"),
    ],
)
def test_allowed_disruptions(healthy, desired, expected, allowed, reason):
    budget = convert(PodDisruptionBudget, {"metadata": {"name": "web", "generation": 3}})
    status = budget_status(budget, healthy, desired, expected, {"web-1": NOW}, NOW)
    assert status.disruptions_allowed == allowed
    assert (status.current_healthy, status.desired_healthy, status.expected_pods) == (healthy, desired, expected)
    assert (status.observed_generation, status.disrupted_pods) == (3, {"web-1": NOW})
    (condition,) = status.conditions
    assert (condition.type, condition.reason, condition.observed_generation) == ("DisruptionAllowed", reason, 3)
    assert condition.status == str(allowed > 0)
    assert condition.last_transition_time == NOW
