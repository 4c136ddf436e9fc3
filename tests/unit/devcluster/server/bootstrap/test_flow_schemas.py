"""Dangling condition of FlowSchemas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import FLOW_SCHEMAS, PRIORITY_LEVEL_CONFIGURATIONS
from kubeloop.devcluster.server.bootstrap.flow_schemas import FlowSchemas
from kubeloop.devcluster.storage.store import ObjectStore

JSON = dict[str, Any]
SCHEMA: JSON = {"metadata": {"name": "s", "uid": "u"}, "spec": {"priorityLevelConfiguration": {"name": "level"}}}
LEVEL: JSON = {"metadata": {"name": "level", "uid": "u"}, "spec": {}}


@pytest.fixture
async def store(clock) -> AsyncIterator[ObjectStore]:
    """A store whose FlowSchemas are reconciled."""
    store = ObjectStore(seconds=lambda: 0.0)
    flow_schemas = FlowSchemas(store, clock)
    store.subscribe(FLOW_SCHEMAS, flow_schemas.note_schema)
    store.subscribe(PRIORITY_LEVEL_CONFIGURATIONS, flow_schemas.note_level)
    task = asyncio.create_task(flow_schemas.run())
    yield store
    task.cancel()
    await asyncio.wait([task])


async def dangling(store: ObjectStore) -> JSON:
    """Return the Dangling condition after the delay of status updates."""
    await asyncio.sleep(1)
    schema = store.get(FLOW_SCHEMAS, "", "s")
    assert schema is not None
    (condition,) = schema["status"]["conditions"]
    return condition


@pytest.mark.virtual_time
async def test_condition_follows_the_priority_level(store: ObjectStore):
    store.create(FLOW_SCHEMAS, SCHEMA)
    assert (await dangling(store))["status"] == "True"
    store.create(PRIORITY_LEVEL_CONFIGURATIONS, LEVEL)
    assert (await dangling(store))["status"] == "False"
    store.delete(PRIORITY_LEVEL_CONFIGURATIONS, "", "level")
    assert (await dangling(store))["status"] == "True"


@pytest.mark.virtual_time
async def test_unchanged_condition_is_not_written(store: ObjectStore):
    store.create(FLOW_SCHEMAS, SCHEMA)
    before = await dangling(store)
    revision = store.revision
    store.create(PRIORITY_LEVEL_CONFIGURATIONS, {**LEVEL, "metadata": {"name": "other", "uid": "u"}})
    assert (await dangling(store), store.revision) == (before, revision + 1)


@pytest.mark.virtual_time
async def test_status_is_applied_by_the_config_consumer(store: ObjectStore):
    store.create(FLOW_SCHEMAS, SCHEMA)
    await dangling(store)
    schema = store.get(FLOW_SCHEMAS, "", "s")
    assert schema is not None
    (entry,) = schema["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["subresource"]) == (
        "api-priority-and-fairness-config-consumer-v1",
        "Apply",
        "status",
    )
