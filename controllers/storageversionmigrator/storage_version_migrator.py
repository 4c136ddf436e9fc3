"""Storage version migrator: applies an empty configuration to every object of a resource, which stores it again.

One queue of resources starts and completes migrations, one after the other for each resource; one queue of migrations
migrates. Source: v1.36 pkg/controller/storageversionmigrator.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kubeloop.controllers.runtime.controller import EventDrivenController, ReconcileError, ReconcileLoop
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.resources.partial_object_metadata import metadata_only
from kubeloop.controllers.runtime.writes.object_patch import versioned_merge_patch
from kubeloop.controllers.storageversionmigrator.migration_state import (
    FAILED,
    RUNNING,
    SUCCEEDED,
    completed_conditions,
    definition_status,
    is_finished,
    is_true,
    is_well_formed,
    plan_migrations,
    target_of,
    with_condition,
)
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.errors import (
    ApiError,
    Conflict,
    InternalError,
    NotFound,
    ServerTimeout,
    ServiceUnavailable,
    TooManyRequests,
)
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, STORAGE_VERSION_MIGRATIONS, Resource
from kubeloop.kube.values.times import parse_time, seconds_between

_MANAGER, _RUNNER = "storage-version-migrator-controller", "migration-runner-controller"
_BY_TARGET = "migration-target"
_VERBS = ("update", "patch", "list")
_NO_NAMESPACE = "@fake:svm_ns!"  # no namespace can have this name
_DISCOVERY_SECONDS = 60.0  # a new custom resource may not be served yet
_WORKERS = 5
_RETRIABLE = (ServerTimeout, TooManyRequests, ServiceUnavailable, InternalError)


def _by_target(migration: JSONValue) -> tuple[str, ...]:
    """Index function of _BY_TARGET."""
    return (target_of(migration),)


class StorageVersionMigrator(EventDrivenController):
    """Reconciles StorageVersionMigrations; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, _MANAGER, workers=_WORKERS)
        migrations = context.informers.informer(STORAGE_VERSION_MIGRATIONS)
        migrations.store.add_index(_BY_TARGET, _by_target)
        self._migrations = migrations.store
        self._runner_queue = context.new_queue(_RUNNER)
        self._runner = ReconcileLoop(_RUNNER, self.reconcile_resource, self._runner_queue, 1, context)
        self._registrations = (migrations.on_changes(self._on_migration),)

    async def run(self) -> None:
        """Migrate until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for controller in (self._runner, self._controller):
                tasks.create_task(controller.run(self._registrations), name=controller.name)

    def _on_migration(self, old: JSONValue | None, new: JSONValue | None) -> None:
        migration = new if new is not None else old
        assert migration is not None
        self._runner_queue.add(target_of(migration))
        if new is not None:
            self.queue.add(new["metadata"]["name"])

    # --- one migration at a time ----------------------------------------------------------------------------------

    async def reconcile_resource(self, target: str) -> float | None:
        """Complete the finished migrations of a resource and start the next one. An exception means: retry."""
        plan = plan_migrations(self._migrations.view(_BY_TARGET, target))
        for migration in plan.finished:
            await self._write_definition(target, migration)
            await self._write_status(migration, conditions=completed_conditions(migration, self._now()))
        if plan.start is not None:
            await self._write_definition(target, plan.start)
            conditions = with_condition(plan.start, RUNNING, "The migration is running", self._now())
            await self._write_status(plan.start, conditions=conditions)
        return None

    async def _write_definition(self, target: str, migration: JSONValue) -> None:
        """Apply the state of a migration to the CustomResourceDefinition, if the resource has one."""
        try:
            definition = await self._client.get(CUSTOM_RESOURCE_DEFINITIONS, target)
        except NotFound:
            return
        body = {
            "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version,
            "kind": CUSTOM_RESOURCE_DEFINITIONS.kind,
            "metadata": {"name": target, "resourceVersion": definition["metadata"]["resourceVersion"]},
            "status": definition_status(definition, migration, self._now()),
        }
        query = {"fieldManager": _RUNNER, "force": "true"}
        await self._client.patch(
            CUSTOM_RESOURCE_DEFINITIONS, target, body, PatchType.APPLY, subresource="status", query=query
        )

    # --- migration ------------------------------------------------------------------------------------------------

    async def reconcile(self, name: str) -> float | None:
        """Take the next step of a running migration. An exception means: retry with backoff."""
        migration = self._migrations.get(name)
        if migration is None or is_finished(migration) or not is_true(migration, RUNNING):
            return None
        served = await ResourceMap.discover(self._client)
        resource = self._resource(served, migration)
        if resource is None:
            created = parse_time(migration["metadata"]["creationTimestamp"])
            if seconds_between(created, self._clock.now()) < _DISCOVERY_SECONDS:
                raise ReconcileError(f"the API server does not serve {target_of(migration)}")
            await self._fail(migration, "resource does not exist in discovery")
        elif not migration["status"].get("resourceVersion"):
            await self._begin(migration, resource, served.verbs(resource))
        else:
            await self._migrate(migration, resource, int(migration["status"]["resourceVersion"]))
        return None

    @staticmethod
    def _resource(served: ResourceMap, migration: JSONValue) -> Resource[Any] | None:
        target = migration["spec"]["resource"]
        group, plural = target.get("group", ""), target["resource"]
        return next((it for it in served.resources if (it.group, it.plural) == (group, plural)), None)

    async def _begin(self, migration: JSONValue, resource: Resource[Any], verbs: frozenset[str]) -> None:
        """Write the resourceVersion up to which objects are migrated."""
        name = f"{resource.api_version}, Resource={resource.plural}"
        if resource.api_version == resource.version:
            name = f"/{name}"
        if not verbs.issuperset(_VERBS):
            problem = f'resource "{name}" does not support discovery operations: [{" ".join(_VERBS)}]'
            await self._fail(migration, problem)
            return
        namespace = _NO_NAMESPACE if resource.namespaced else ""
        page = await self._client.list(metadata_only(resource), namespace, limit=1)
        version = page.metadata.resource_version
        if is_well_formed(version):
            await self._write_status(migration, resourceVersion=version)
        else:
            problem = f"latest resourceVersion for {name} is not valid: resource version is not well formed: {version}"
            await self._fail(migration, problem)

    async def _migrate(self, migration: JSONValue, resource: Resource[Any], newest: int) -> None:
        """Store all objects again that are not newer than this resourceVersion."""
        page = await self._client.list_all(metadata_only(resource))
        for obj in page.items:
            metadata = obj.metadata
            if int(metadata.resource_version) > newest:
                continue
            body = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                # with both, an object that is deleted or changed meanwhile causes a conflict
                "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
            }
            query = {"fieldManager": _MANAGER}
            try:
                await self._client.patch(
                    metadata_only(resource), metadata.name, body, PatchType.APPLY, metadata.namespace, query=query
                )
            except Conflict:
                continue  # written since, and so migrated, or deleted
            except _RETRIABLE:
                raise
            except ApiError as error:
                await self._fail(migration, f"migration encountered unhandled error: {error}")
                return
        await self._write_status(migration, conditions=with_condition(migration, SUCCEEDED, "", self._now()))

    async def _fail(self, migration: JSONValue, message: str) -> None:
        await self._write_status(migration, conditions=with_condition(migration, FAILED, message, self._now()))

    async def _write_status(self, migration: JSONValue, **status: JSONValue) -> None:
        metadata = migration["metadata"]
        body = versioned_merge_patch(metadata["resourceVersion"], status=status)
        await self._client.patch(
            STORAGE_VERSION_MIGRATIONS, metadata["name"], body, PatchType.MERGE, subresource="status"
        )

    def _now(self) -> str:
        return rfc3339(self._clock.now())
