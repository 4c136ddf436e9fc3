"""States of StorageVersionMigrations: which one of a resource runs, and their conditions. Pure functions.

Source: v1.36 pkg/controller/storageversionmigrator/{migrationrunner,storageversionmigrator,util}.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubeloop.kube.objects.api_types import JSONValue

RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"
_STORAGE_MIGRATING = "StorageMigrating"
_REASONS = {
    RUNNING: "MigrationRunning",
    SUCCEEDED: "StorageVersionMigrationSucceeded",
    FAILED: "StorageVersionMigrationFailed",
}


def is_true(migration: JSONValue, type_: str) -> bool:
    """Return True if a condition is True."""
    return any(condition["type"] == type_ and condition["status"] == "True" for condition in _conditions(migration))


def is_finished(migration: JSONValue) -> bool:
    """Return True if a migration has succeeded or failed."""
    return is_true(migration, SUCCEEDED) or is_true(migration, FAILED)


def target_of(migration: JSONValue) -> str:
    """Return the group resource that is migrated: "deployments.apps", "pods"."""
    resource = migration["spec"]["resource"]
    return ".".join(filter(None, (resource.get("resource"), resource.get("group"))))


@dataclass(frozen=True, slots=True)
class RunnerPlan:
    """finished: running migrations to mark as completed. start: the migration to start, None if one runs."""

    finished: tuple[JSONValue, ...] = ()
    start: JSONValue | None = None


def plan_migrations(migrations: Iterable[JSONValue]) -> RunnerPlan:
    """Return what is due for the migrations of one resource: at most one of them runs, the oldest first."""
    finished, waiting, is_running = [], [], False
    for migration in migrations:
        if not is_true(migration, RUNNING):
            if not is_finished(migration):
                waiting.append(migration)
        elif is_finished(migration):
            finished.append(migration)
        else:
            is_running = True
    start = min(waiting, key=_age_and_name) if waiting and not is_running else None
    return RunnerPlan(tuple(finished), start)


def _age_and_name(migration: JSONValue) -> tuple[str, str]:
    return migration["metadata"]["creationTimestamp"], migration["metadata"]["name"]


def with_condition(migration: JSONValue, type_: str, message: str, now: str) -> list[JSONValue]:
    """Return the conditions with this one, True; one of this type that is True or False stays. now: RFC 3339."""
    conditions = list(_conditions(migration))
    if any(condition["type"] == type_ and condition["status"] in ("True", "False") for condition in conditions):
        return conditions
    reason = _REASONS[type_]
    condition = {"type": type_, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
    return [*conditions, condition]


def completed_conditions(migration: JSONValue, now: str) -> list[JSONValue]:
    """Return the conditions with Running False. now: RFC 3339."""
    completed = {
        "type": RUNNING,
        "status": "False",
        "observedGeneration": migration["metadata"].get("generation", 0),
        "lastTransitionTime": now,
        "reason": "MigrationCompleted",
        "message": "Migration completed",
    }
    return [completed if condition["type"] == RUNNING else condition for condition in _conditions(migration)]


def definition_status(definition: JSONValue, migration: JSONValue, now: str) -> dict[str, JSONValue]:
    """Return the status to apply to the CustomResourceDefinition of a migration that starts or is finished.

    After a success, only the storage version is a stored one, unless the definition has changed meanwhile.
    """
    generation = definition["metadata"].get("generation", 0)
    condition: dict[str, JSONValue] = {
        "type": _STORAGE_MIGRATING,
        "status": "False",
        "lastTransitionTime": now,
        "observedGeneration": generation,
    }
    if not is_finished(migration):
        name = migration["metadata"]["name"]
        started = {"status": "True", "reason": "MigrationRunning", "message": f"Migration {name} is running"}
        return {"conditions": [{**condition, **started}]}
    began: JSONValue = next((it for it in _conditions(definition) if it["type"] == _STORAGE_MIGRATING), {})
    is_unchanged = began.get("observedGeneration") == generation
    if is_true(migration, SUCCEEDED):
        outcome = (
            "and the stored versions have been updated"
            if is_unchanged
            else "but the stored versions have not been updated due to a generation mismatch"
        )
        condition |= {"reason": "MigrationSucceeded", "message": f"The migration has succeeded {outcome}"}
    else:
        condition |= {"reason": "MigrationFailed", "message": "The migration has failed"}
    status: dict[str, JSONValue] = {"conditions": [condition]}
    if is_unchanged:
        versions = definition["spec"]["versions"]
        status["storedVersions"] = [version["name"] for version in versions if version["storage"]][:1]
    return status


def is_well_formed(resource_version: str) -> bool:
    """Return True for a positive decimal number without leading zeros."""
    digits = resource_version.isascii() and resource_version.isdecimal()
    return digits and not resource_version.startswith("0")


def _conditions(obj: JSONValue) -> Sequence[JSONValue]:
    return (obj.get("status") or {}).get("conditions") or ()
