"""Storage version migrator: objects are stored again, and the state of migrations and definitions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.storageversionmigrator.storage_version_migrator import StorageVersionMigrator
from kubeloop.devcluster.api import errors
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    STORAGE_VERSION_MIGRATIONS,
)
from support.apiserver.fake_apiserver import WIDGETS, FakeApiServer

pytestmark = pytest.mark.virtual_time
DEFINITION = "widgets.example.com"
GATES = ("StorageVersionMigrator", "CRDObservedGenerationTracking")


@pytest.fixture
async def server() -> FakeApiServer:
    server = FakeApiServer(gates=FeatureGates(dict.fromkeys(GATES, True)))
    server.define_widgets()
    server.add(NAMESPACES, "ns")
    return server


@pytest.fixture
async def migrator(server, start) -> StorageVersionMigrator:
    migrator = StorageVersionMigrator(server.context)
    await start(server.informers, migrator)
    return migrator


def migrate(server: FakeApiServer, name: str = "m", resource: str = "widgets", group: str = "example.com") -> None:
    spec = {"resource": {"resource": resource, "group": group}}
    server.api.create(STORAGE_VERSION_MIGRATIONS.path(), {"metadata": {"name": name}, "spec": spec})


def state(server: FakeApiServer, name: str = "m") -> dict[str, str]:
    migration = server.store.get(STORAGE_VERSION_MIGRATIONS, "", name)
    assert migration is not None
    return {it["type"]: it["status"] for it in migration.get("status", {}).get("conditions", ())}


def change_storage_version(server: FakeApiServer) -> None:
    """Add the version v2 and store in it."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == "v2", "schema": schema} for name in ("v1", "v2")]
    path = CUSTOM_RESOURCE_DEFINITIONS.path(name=DEFINITION)
    server.api.succeed("PATCH", path, {"spec": {"versions": versions}})


DONE = {"Running": "False", "Succeeded": "True"}


async def test_objects_are_stored_in_the_storage_version(server, migrator):
    server.add(WIDGETS, "a")
    change_storage_version(server)
    server.add(WIDGETS, "b")
    older, newer = (server.store.get(WIDGETS, "ns", name) for name in ("a", "b"))
    migrate(server)
    await asyncio.sleep(5)
    assert state(server) == DONE
    assert [it["apiVersion"] for it in server.store.list(WIDGETS)] == ["example.com/v2"] * 2
    assert older is not None
    assert server.store.get(WIDGETS, "ns", "a")["metadata"]["resourceVersion"] > older["metadata"]["resourceVersion"]
    assert server.store.get(WIDGETS, "ns", "b") == newer
    definition: Any = server.store.get(CUSTOM_RESOURCE_DEFINITIONS, "", DEFINITION)
    assert definition["status"]["storedVersions"] == ["v2"]
    condition = next(it for it in definition["status"]["conditions"] if it["type"] == "StorageMigrating")
    assert (condition["status"], condition["reason"]) == ("False", "MigrationSucceeded")


async def test_migrations_of_one_resource_run_one_after_the_other(server, migrator):
    running: list[list[str]] = []
    server.store.subscribe(
        STORAGE_VERSION_MIGRATIONS,
        lambda change: (
            running.append([name for name in ("a", "b") if state(server, name) == {"Running": "True"}])
            if len(server.store.list(STORAGE_VERSION_MIGRATIONS)) == 2
            else None
        ),
    )
    for name in ("a", "b"):
        migrate(server, name)
    await asyncio.sleep(5)
    assert state(server, "a") == state(server, "b") == DONE
    assert max(map(len, running)) == 1


async def test_resource_without_a_definition_is_migrated(server, migrator):
    server.add(CONFIG_MAPS, "c")
    migrate(server, resource="configmaps", group="")
    await asyncio.sleep(5)
    assert state(server) == DONE


@pytest.mark.parametrize(
    ("resource", "group", "seconds"),
    [pytest.param("bindings", "", 5, id="no verbs"), pytest.param("missing", "example.com", 200, id="not served")],
)
async def test_resource_that_cannot_be_migrated_fails(server, migrator, resource, group, seconds):
    migrate(server, resource=resource, group=group)
    await asyncio.sleep(seconds)
    assert state(server) == {"Running": "False", "Failed": "True"}


async def test_resource_may_appear_within_a_minute(server, migrator):
    migrate(server, resource="missing")
    await asyncio.sleep(30)
    assert state(server) == {"Running": "True"}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(errors.conflict(WIDGETS, "a"), DONE, id="conflict: the object is newer"),
        pytest.param(errors.forbidden(WIDGETS, "a", "no"), {"Running": "False", "Failed": "True"}, id="refused"),
        pytest.param(
            errors.too_many_requests("busy", retry_after_seconds=1), {"Running": "True"}, id="overload: retried"
        ),
    ],
)
async def test_error_of_one_object(server, migrator, error, outcome):
    server.add(WIDGETS, "a")
    server.transport.reject = lambda method, path: error if method == "PATCH" and "/widgets/" in path else None
    migrate(server)
    await asyncio.sleep(5)
    assert state(server) == outcome
