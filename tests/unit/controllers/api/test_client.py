"""Live reads and writes of objects, and their errors."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest

from kubeloop.controllers.api.client import Client, NoKindMatchError, PartialStruct
from kubeloop.controllers.api.patches import merge_from, merge_patch
from kubeloop.kube.errors import (
    AlreadyExists,
    ApplyConflict,
    Conflict,
    DisruptionBudgetExceeded,
    NamespaceTerminating,
    NotFound,
)
from kubeloop.kube.objects.api_types import Condition, Object, ObjectMeta, PartialObjectMetadata, Struct
from kubeloop.kube.objects.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    VOLUME_ATTRIBUTES_CLASSES,
    new_resource,
)
from support.apiserver.fake_apiserver import WIDGETS
from support.controllers.sites import CRD, SITES, Site, SiteSpec
from support.controllers.sites import site as site_manifest

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def client(fake_apiserver) -> Client:
    fake_apiserver.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
    return Client(fake_apiserver.client, field_manager="sites", resources=[SITES])


def config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "ns"},
        "data": data,
    }


async def test_dict_is_created_read_updated_and_deleted(client):
    created = await client.create(config_map(a="1"))
    assert created["metadata"]["uid"]
    assert "managedFields" not in created["metadata"]
    with pytest.raises(AlreadyExists):
        await client.create(config_map())
    updated = await client.update({**created, "data": {"a": "2"}})
    with pytest.raises(Conflict):
        await client.update({**created, "data": {"a": "3"}})
    assert (await client.get(CONFIG_MAPS, "a", "ns"))["data"] == {"a": "2"}
    assert [obj["metadata"]["name"] for obj in await client.list(CONFIG_MAPS, "ns", field_selector="metadata.name=a")]
    with pytest.raises(Conflict):
        await client.delete(created, resource_version=True)
    await client.delete(updated)
    await client.delete(updated)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", "ns")


async def test_struct_of_the_author_is_written_and_returned(client):
    created = await client.create(Site(metadata=ObjectMeta(name="blog", namespace="ns")))
    assert created.spec == SiteSpec()
    assert created.kind == "Site"
    changed = msgspec.structs.replace(created, spec=SiteSpec(replicas=3))
    assert (await client.patch(changed, merge_from(created))).spec.replicas == 3
    current = await client.get(SITES, "blog", "ns")
    updated = await client.update(msgspec.structs.replace(current, spec=SiteSpec(replicas=4)))
    assert updated.spec.replicas == 4


async def test_struct_of_a_built_in_kind_is_not_replaced(client, fake_apiserver):
    fake_apiserver.add(DEPLOYMENTS, "web")
    deployment = await client.get(DEPLOYMENTS, "web", "ns")
    with pytest.raises(PartialStruct, match="Deployment declares only some fields"):
        await client.update(deployment)
    patched = await client.patch(deployment, merge_patch({"spec": {"replicas": 2}}))
    assert patched.spec.replicas == 2


async def test_type_of_several_resources_is_resolved_by_the_kind_of_the_object(client, fake_apiserver):
    body = {"metadata": {"name": "gold"}, "driverName": "d", "parameters": {"iops": "1"}}
    fake_apiserver.api.create(VOLUME_ATTRIBUTES_CLASSES.path(), body)
    gold = await client.get(VOLUME_ATTRIBUTES_CLASSES, "gold")
    assert isinstance(gold, PartialObjectMetadata)
    patched = await client.patch(gold, merge_patch({"metadata": {"labels": {"a": "b"}}}))
    assert patched.metadata.labels == {"a": "b"}


async def test_patch_does_not_apply_to_another_object_of_the_name(client):
    first = await client.create(config_map(a="1"))
    await client.delete(first)
    await client.create(config_map(a="2"))
    with pytest.raises(Conflict):
        await client.patch(first, merge_patch({"data": {"a": "3"}}))
    with pytest.raises(Conflict):
        await client.delete(first)


async def test_status_is_written_if_it_differs(client, fake_apiserver):
    created = await client.create(site_manifest() | {"metadata": {"name": "blog", "namespace": "ns"}})
    typed = await client.get(SITES, "blog", "ns")
    assert await client.patch_status(typed, {"readyReplicas": 0}) is typed
    written = await client.patch_status(created, {"readyReplicas": 0})
    assert written["status"] == {"readyReplicas": 0}
    count = len(fake_apiserver.requests)
    assert await client.patch_status(written, {"readyReplicas": 0}) is written
    assert len(fake_apiserver.requests) == count
    with pytest.raises(Conflict):
        await client.patch_status(typed, {"readyReplicas": 1})
    assert (await client.update_status({**written, "status": {"a": 1}}))["status"] == {"a": 1}


class PartStatus(Struct):
    text: str = ""
    since: datetime | None = None


class FullStatus(Struct):
    phase: str = "Pending"
    count: int = 0
    part: PartStatus = PartStatus()
    conditions: tuple[Condition, ...] = ()
    parts: tuple[PartStatus, ...] = ()


class FullSite(Object):
    status: FullStatus = FullStatus()


FULL_SITES = new_resource(FullSite, "example.com/v1", plural="sites", kind="Site")
TIME = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("first", "second", "requests"),
    [
        ({"phase": "Pending", "count": 0}, {"phase": "Pending"}, 0),  # defaults
        ({"conditions": [{"type": "Ready", "message": ""}]}, {"conditions": [{"type": "Ready", "message": ""}]}, 1),
        ({"conditions": [{"type": "Ready", "message": ""}]}, {"conditions": [{"type": "Ready", "reason": "A"}]}, 2),
        ({"conditions": [{"type": "Ready", "other": 1}]}, {"conditions": [{"type": "Ready", "other": 1}]}, 2),
        ({"conditions": [{"type": "Ready"}]}, {"conditions": []}, 2),
        ({"part": {"text": "a", "since": TIME}}, {"part": {"since": TIME}}, 1),  # a merge patch keeps the text
        ({"parts": [{"text": "a", "since": TIME}]}, {"parts": [{"since": TIME}]}, 2),  # and replaces a list
        ({"part": {"text": "a"}}, {"part": {"text": ""}}, 2),
        ({"part": {"text": "a"}}, {"part": {"text": None}}, 2),
        ({"part": {"text": None}, "phase": None}, {"part": {"text": None}}, 0),
        ({"undeclared": 3}, {"undeclared": 0}, 2),
    ],
)
async def test_typed_status_is_written_if_it_differs(client, fake_apiserver, first, second, requests):
    await client.create(site_manifest() | {"metadata": {"name": "blog", "namespace": "ns"}})
    count = len(fake_apiserver.transport.sent)
    site = await client.get(FULL_SITES, "blog", "ns")
    for status in (first, second):
        site = await client.patch_status(site, status)
        assert await client.get(FULL_SITES, "blog", "ns") == site
    sent = [request for request in fake_apiserver.transport.sent[count:] if request.method == "PATCH"]
    assert len(sent) == requests


async def test_apply_sets_fields_and_removes_those_of_an_earlier_apply(client):
    await client.apply(config_map(a="1", b="2"))
    applied = await client.apply(config_map(a="3"))
    assert applied["data"] == {"a": "3"}
    other = Client(client.raw, field_manager="other")
    with pytest.raises(ApplyConflict):
        await other.apply(config_map(a="4"), force=False)
    assert (await other.apply(config_map(a="4")))["data"] == {"a": "4"}


async def test_scale_sets_replicas(client, fake_apiserver):
    fake_apiserver.add(DEPLOYMENTS, "web")
    await client.scale(await client.get(DEPLOYMENTS, "web", "ns"), 5)
    assert (await client.get(DEPLOYMENTS, "web", "ns")).spec.replicas == 5


async def test_eviction_is_rejected_by_a_disruption_budget(client, fake_apiserver):
    fake_apiserver.add(PODS, "a", labels={"app": "web"})
    pod = await client.get(PODS, "a", "ns")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    fake_apiserver.api.create(POD_DISRUPTION_BUDGETS.path("ns"), budget)
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    fake_apiserver.api.succeed("PATCH", f"{PODS.path('ns', 'a')}/status", running)
    with pytest.raises(DisruptionBudgetExceeded):
        await client.evict(pod)
    fake_apiserver.delete(POD_DISRUPTION_BUDGETS, "web")
    await client.evict(pod)
    fake_apiserver.api("DELETE", PODS.path("ns", "a"), {"gracePeriodSeconds": 0})
    await client.evict(pod)


async def test_kind_that_is_defined_by_the_cluster_is_discovered(client):
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "ns"}}
    assert (await client.create(body))["metadata"]["uid"]
    assert (await client.get(WIDGETS, "w", "ns"))["kind"] == "Widget"
    with pytest.raises(NoKindMatchError, match="serves no Gadget"):
        await client.create({**body, "kind": "Gadget"})


async def test_create_in_a_namespace_that_is_deleted_has_its_own_error(client, fake_apiserver):
    fake_apiserver.add(NAMESPACES, "ending")
    fake_apiserver.delete(NAMESPACES, "ending")
    with pytest.raises(NamespaceTerminating):
        await client.create({**config_map(), "metadata": {"name": "a", "namespace": "ending"}})
