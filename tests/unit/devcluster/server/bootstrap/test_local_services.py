"""APIServices of the groups and versions that CustomResourceDefinitions serve."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import API_SERVICES, CUSTOM_RESOURCE_DEFINITIONS
from kubeloop.devcluster.server.bootstrap.local_services import LocalServices
from kubeloop.devcluster.storage.store import ObjectStore
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def definition(name: str, *, served: bool = True) -> JSON:
    spec = {"group": "example.com", "versions": [{"name": "v1", "served": served, "storage": True}]}
    return {"metadata": {"name": f"{name}.example.com", "uid": "u"}, "spec": spec}


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore(seconds=lambda: 0.0)


@pytest.fixture
def services(store: ObjectStore) -> LocalServices:
    return LocalServices(store, SetClock(NOW), random.Random(1))


def names(store: ObjectStore, services: LocalServices) -> list[str]:
    services.settle()
    return [service["metadata"]["name"] for service in store.list(API_SERVICES)]


def test_service_exists_while_a_definition_serves_the_version(store: ObjectStore, services: LocalServices):
    store.create(CUSTOM_RESOURCE_DEFINITIONS, definition("widgets"))
    store.create(CUSTOM_RESOURCE_DEFINITIONS, definition("gadgets"))
    assert names(store, services) == ["v1.example.com"]
    store.delete(CUSTOM_RESOURCE_DEFINITIONS, "", "widgets.example.com")
    assert names(store, services) == ["v1.example.com"]
    store.delete(CUSTOM_RESOURCE_DEFINITIONS, "", "gadgets.example.com")
    assert names(store, services) == []


def test_version_that_is_not_served_has_no_service(store: ObjectStore, services: LocalServices):
    store.create(CUSTOM_RESOURCE_DEFINITIONS, definition("widgets", served=False))
    assert names(store, services) == []


def test_definitions_stored_before_the_start_have_services(store: ObjectStore):
    store.create(CUSTOM_RESOURCE_DEFINITIONS, definition("widgets"))
    assert names(store, LocalServices(store, SetClock(NOW), random.Random(1))) == ["v1.example.com"]


def test_changed_spec_is_restored_and_deleted_service_returns(store: ObjectStore, services: LocalServices):
    store.create(CUSTOM_RESOURCE_DEFINITIONS, definition("widgets"))
    services.settle()
    (created,) = store.list(API_SERVICES)
    store.update(API_SERVICES, {**created, "spec": {**created["spec"], "versionPriority": 7}})
    services.settle()
    assert store.list(API_SERVICES)[0]["spec"] == created["spec"]
    store.delete(API_SERVICES, "", "v1.example.com")
    assert names(store, services) == ["v1.example.com"]


def test_service_without_automanaged_label_is_not_changed(store: ObjectStore, services: LocalServices):
    service = {"metadata": {"name": "v1.example.com", "uid": "u"}, "spec": {"versionPriority": 5}}
    store.create(API_SERVICES, service)
    store.create(CUSTOM_RESOURCE_DEFINITIONS, definition("widgets"))
    services.settle()
    assert store.list(API_SERVICES)[0]["spec"] == {"versionPriority": 5}
    store.delete(CUSTOM_RESOURCE_DEFINITIONS, "", "widgets.example.com")
    assert names(store, services) == ["v1.example.com"]
