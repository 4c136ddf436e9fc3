"""Validation of writes to the status of Jobs."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import JOBS
from kubeloop.devcluster.kinds.batch.job_status import validate_job_status_update
from support.objects.validation_causes import update_causes, validator_causes

JSON = dict[str, Any]


def job_with_conditions(*kinds: str, **status: Any) -> JSON:
    conditions = [{"type": kind, "status": "True"} for kind in kinds]
    return {"spec": {"template": {}, "completions": 4}, "status": {"conditions": conditions, **status}}


@pytest.mark.parametrize(
    ("old", "new", "causes"),
    [
        (job_with_conditions(), job_with_conditions("Complete"), [
            "status.completionTime: Required value: completionTime is required for Complete jobs",
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true "
            "condition",
            "status.startTime: Required value: startTime is required for finished job"]),
        (job_with_conditions("Failed"), job_with_conditions(), [
            "status.conditions: Invalid value: cannot disable the terminal Failed=True condition"]),
        (job_with_conditions(failed=2), job_with_conditions(failed=1, ready=1), [
            "status.ready: Invalid value: 1: cannot set more ready pods than active",
            "status.failed: Invalid value: 1: cannot decrease the failed counter"]),
        (job_with_conditions(), job_with_conditions(completedIndexes="1,0-9"), [
            'status.completedIndexes: Invalid value: "1,0-9": error parsing completedIndexes: too large index: "9"',
            'status.completedIndexes: Invalid value: "1,0-9": cannot set non-empty completedIndexes when non-indexed '
            "completion mode"]),
        (job_with_conditions(), job_with_conditions(completedIndexes="0,2-3", failedIndexes="1,3"), [
            'status.completedIndexes: Invalid value: "0,2-3": cannot set non-empty completedIndexes when non-indexed '
            "completion mode",
            'status.failedIndexes: Invalid value: "1,3": cannot set non-null failedIndexes when backoffLimitPerIndex '
            "is null",
            'status.failedIndexes: Invalid value: "1,3": failedIndexes and completedIndexes overlap at index: 3']),
        (job_with_conditions(completedIndexes="x"), job_with_conditions(completedIndexes="x", active=1), []),
    ],
)  # fmt: skip
def test_job_status_causes(old: JSON, new: JSON, causes: list[str]):
    assert update_causes(JOBS, old, new, "status") == causes


@pytest.mark.parametrize(
    ("spec", "started", "causes"),
    [
        pytest.param({}, "2026-01-01T00:00:00Z", [], id="unchanged"),
        pytest.param(
            {},
            "2026-01-02T00:00:00Z",
            [
                'status.startTime: Invalid value: "2026-01-02T00:00:00Z": '
                "field is immutable for unsuspended job once set"
            ],
            id="running job",
        ),
        pytest.param({"suspend": True}, None, [], id="suspended job"),
    ],
)
def test_start_time_changes_only_while_suspended(spec: JSON, started: str | None, causes: list[str]) -> None:
    old = {"spec": spec, "status": {"startTime": "2026-01-01T00:00:00Z"}}
    new = {"spec": spec, "status": {"active": 1, **({"startTime": started} if started else {})}}
    assert validator_causes(validate_job_status_update, new, old) == causes


def test_uncounted_pods_are_unique_and_named() -> None:
    pods = {"succeeded": ["a", ""], "failed": ["a"]}
    new = {"spec": {}, "status": {"uncountedTerminatedPods": pods}}
    assert validator_causes(validate_job_status_update, new, {"spec": {}}) == [
        'status.uncountedTerminatedPods.succeeded[1]: Invalid value: "": must not be empty',
        'status.uncountedTerminatedPods.failed[0]: Duplicate value: "a"',
    ]
