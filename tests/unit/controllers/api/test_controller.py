"""An operator with finalizer, owned objects and conditions; what the author's API exports."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from kubeloop.controllers import api
from kubeloop.controllers.api.controller import ControllerLog
from kubeloop.controllers.api.runner import ControllerRunner
from kubeloop.kube.client.current_span import current_span
from kubeloop.kube.objects.resources import CONFIG_MAPS, DEPLOYMENTS
from support.apiserver.fake_apiserver import FakeApiServer
from support.controllers.sites import CRD, FINALIZER, SITES, Sites, site

pytestmark = pytest.mark.virtual_time


class Operator:
    """The operator of Sites on a fake API server, and the records in its DNS."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.records: set[str] = set()
        server.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
        self.runner = ControllerRunner(server.context, functools.partial(Sites, records=self.records))

    def create(self, **spec: Any) -> None:
        self.server.api.create(SITES.path("default"), site(**spec))

    def site(self) -> Mapping[str, Any]:
        return self.server.store.get(SITES, "default", "blog") or {}

    def owned(self) -> list[str]:
        return [
            f"{resource.plural}/{obj['metadata']['name']}"
            for resource in (CONFIG_MAPS, DEPLOYMENTS)
            for obj in self.server.store.list(resource)
            if obj["metadata"].get("ownerReferences")
        ]


@pytest.fixture
async def operator(fake_apiserver, start) -> Operator:
    operator = Operator(fake_apiserver)
    await start(fake_apiserver.informers, operator.runner)
    return operator


async def test_object_has_finalizer_owned_objects_and_condition(operator):
    operator.create(replicas=2)
    await asyncio.sleep(5)
    assert operator.site()["metadata"]["finalizers"] == [FINALIZER]
    assert operator.owned() == ["configmaps/blog", "deployments/blog"]
    [condition] = operator.site()["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["observedGeneration"]) == ("Ready", "False", 1)
    writes = [f"{method} {path.rpartition('/v1/')[2]}" for method, path, _ in operator.server.requests]
    assert writes == [
        "PATCH namespaces/default/sites/blog",
        "PATCH namespaces/default/configmaps/blog",
        "PATCH namespaces/default/deployments/blog",
        "PATCH namespaces/default/sites/blog/status",
    ]


async def test_nothing_is_written_while_nothing_changes(operator):
    operator.create()
    await asyncio.sleep(5)
    count = len(operator.server.requests)
    ready = {"status": {"readyReplicas": 1, "replicas": 1}}
    operator.server.api.succeed("PATCH", f"{DEPLOYMENTS.path('default', 'blog')}/status", ready)
    await asyncio.sleep(5)
    assert [path for _, path, _ in operator.server.requests[count:]] == [
        "/apis/example.com/v1/namespaces/default/sites/blog/status"
    ]


async def test_change_by_another_writer_is_corrected(operator):
    operator.create(replicas=2)
    await asyncio.sleep(5)
    operator.server.api.succeed("PATCH", DEPLOYMENTS.path("default", "blog"), {"spec": {"replicas": 7}})
    operator.server.api.succeed("PATCH", CONFIG_MAPS.path("default", "blog"), {"data": {"index.html": "x"}})
    await asyncio.sleep(5)
    deployment = operator.server.store.get(DEPLOYMENTS, "default", "blog")
    config_map = operator.server.store.get(CONFIG_MAPS, "default", "blog")
    assert deployment["spec"]["replicas"] == 2
    assert config_map["data"] == {"index.html": ""}


async def test_object_that_is_no_longer_in_the_set_is_deleted(operator, monkeypatch):
    operator.create()
    await asyncio.sleep(5)
    monkeypatch.setattr("support.controllers.sites.has_text", lambda site: False)
    operator.server.api.succeed("PATCH", SITES.path("default", "blog"), {"spec": {"text": "new"}})
    await asyncio.sleep(5)
    assert operator.owned() == ["deployments/blog"]


async def test_deleted_object_is_cleaned_up_before_it_ends(operator):
    operator.create()
    await asyncio.sleep(5)
    assert operator.records == {"blog"}
    operator.server.api.succeed("DELETE", SITES.path("default", "blog"))
    assert operator.site()["metadata"]["deletionTimestamp"]
    await asyncio.sleep(5)
    assert operator.site() == {}
    assert operator.records == set()


async def test_log_record_has_controller_and_object(fake_apiserver, caplog):
    log = ControllerLog(logging.getLogger("test"), {"controller": "sites"})
    with caplog.at_level(logging.INFO), fake_apiserver.context.traces.reconcile("sites", "ns/blog"):
        log.info("text", extra={"size": 3})
    [record] = caplog.records
    assert (record.controller, record.object, record.size) == ("sites", "ns/blog", 3)
    assert current_span.get() is None


async def test_applied_status_is_corrected_after_another_writer(operator):
    operator.create()
    await asyncio.sleep(5)
    client = operator.runner.controller.client
    manifest = {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "blog", "namespace": "default"}}
    applied = {**manifest, "status": {"phase": "Up"}}
    await client.apply_status(applied)
    operator.server.api.succeed("PATCH", f"{SITES.path('default', 'blog')}/status", {"status": {"phase": "Down"}})
    await asyncio.sleep(5)
    await client.apply_status(applied)
    assert operator.site()["status"]["phase"] == "Up"


def test_api_exports_what_it_lists():
    assert sorted(api.__all__) == sorted(name for name in vars(api) if not name.startswith("_") and is_exported(name))


def is_exported(name: str) -> bool:
    """Return False for submodules."""
    return not isinstance(getattr(api, name), type(api))
