"""Which migration of a resource runs, and the conditions of migrations and definitions."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.storageversionmigrator.migration_state import (
    FAILED,
    RUNNING,
    SUCCEEDED,
    RunnerPlan,
    completed_conditions,
    definition_status,
    is_well_formed,
    plan_migrations,
    target_of,
    with_condition,
)

NOW = "2026-01-01T00:00:00Z"


def migration(name: str = "m", created: str = "2026-01-01T00:00:00Z", **conditions: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "creationTimestamp": created, "generation": 1},
        "spec": {"resource": {"resource": "widgets", "group": "example.com"}},
        "status": {"conditions": [{"type": type_, "status": status} for type_, status in conditions.items()]},
    }


WAITING, LATER = migration("b"), migration("a", "2026-01-01T00:00:01Z")
ACTIVE = migration("c", Running="True")
DONE = migration("d", Running="True", Succeeded="True")
CLOSED = migration("e", Running="False", Failed="True")


@pytest.mark.parametrize(
    ("migrations", "plan"),
    [
        pytest.param([], RunnerPlan(), id="none"),
        pytest.param([LATER, WAITING], RunnerPlan(start=WAITING), id="the oldest starts"),
        pytest.param([WAITING, migration("a")], RunnerPlan(start=migration("a")), id="of the same age: by name"),
        pytest.param([WAITING, ACTIVE], RunnerPlan(), id="one runs"),
        pytest.param([ACTIVE, WAITING], RunnerPlan(), id="one runs, in another order"),
        pytest.param([DONE, WAITING], RunnerPlan((DONE,), WAITING), id="one is finished: the next starts"),
        pytest.param([CLOSED], RunnerPlan(), id="completed"),
    ],
)
def test_one_migration_of_a_resource_runs(migrations: list[Any], plan: RunnerPlan):
    assert plan_migrations(migrations) == plan


@pytest.mark.parametrize(
    ("resource", "target"),
    [({"resource": "widgets", "group": "example.com"}, "widgets.example.com"), ({"resource": "pods"}, "pods")],
)
def test_target_is_the_name_of_a_definition(resource: Any, target: str):
    assert target_of({"spec": {"resource": resource}}) == target


def test_condition_is_added_once():
    [condition] = with_condition(migration(), FAILED, "why", NOW)
    assert condition == {
        "type": "Failed",
        "status": "True",
        "lastTransitionTime": NOW,
        "reason": "StorageVersionMigrationFailed",
        "message": "why",
    }
    assert with_condition(ACTIVE, RUNNING, "again", NOW) == ACTIVE["status"]["conditions"]
    assert [it["type"] for it in with_condition(ACTIVE, SUCCEEDED, "", NOW)] == ["Running", "Succeeded"]
    assert with_condition({"metadata": {}}, RUNNING, "", NOW)[0]["reason"] == "MigrationRunning"


def test_completed_migration_is_not_running():
    completed = completed_conditions(DONE, NOW)
    assert [(it["type"], it["status"]) for it in completed] == [("Running", "False"), ("Succeeded", "True")]
    assert (completed[0]["reason"], completed[0]["observedGeneration"]) == ("MigrationCompleted", 1)


def definition(generation: int, observed: int | None = None) -> dict[str, Any]:
    versions = [{"name": "v1", "storage": False}, {"name": "v2", "storage": True}]
    began = [{"type": "StorageMigrating", "status": "True", "observedGeneration": observed}] if observed else []
    return {
        "metadata": {"generation": generation},
        "spec": {"versions": versions},
        "status": {"storedVersions": ["v1", "v2"], "conditions": began},
    }


@pytest.mark.parametrize(
    ("definition", "migration", "reason", "message", "stored"),
    [
        pytest.param(definition(2), WAITING, "MigrationRunning", "Migration b is running", None, id="start"),
        pytest.param(
            definition(2, 2), DONE, "MigrationSucceeded",
            "The migration has succeeded and the stored versions have been updated", ["v2"], id="success",
        ),
        pytest.param(
            definition(3, 2), DONE, "MigrationSucceeded",
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
            None, id="the definition has changed",
        ),
        pytest.param(definition(3, 2), CLOSED, "MigrationFailed", "The migration has failed", None, id="failure"),
    ],
)  # fmt: skip
def test_status_of_the_definition(definition: Any, migration: Any, reason: str, message: str, stored: Any):
    status = definition_status(definition, migration, NOW)
    [condition] = status["conditions"]
    assert (condition["reason"], condition["message"]) == (reason, message)
    assert condition["status"] == str(reason == "MigrationRunning")
    assert condition["observedGeneration"] == definition["metadata"]["generation"]
    assert status.get("storedVersions") == stored


@pytest.mark.parametrize(
    ("text", "valid"), [("1", True), ("10", True), ("", False), ("0", False), ("01", False), ("1a", False)]
)
def test_resource_version_is_a_positive_number(text: str, valid: bool):
    assert is_well_formed(text) is valid
