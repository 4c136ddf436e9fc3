"""Garbage collection, namespaces and informers of custom resources, in memory and virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.kube.errors import NotFound
from kubeloop.testing.in_memory import memory_cluster
from kubeloop.testing.virtual_time import VirtualClock
from support.comparison.custom_resource_requests import WIDGETS, widget

pytestmark = pytest.mark.virtual_time


async def test_dependents_of_a_new_custom_resource_kind_are_deleted(clock: VirtualClock):
    async with memory_cluster(clock=clock) as api:
        await api.apply(WIDGETS)
        await asyncio.sleep(1)
        await api.apply(widget("owner"))
        owner = await api.get("widget/owner")
        reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "owner", "uid": owner["metadata"]["uid"]}
        metadata = {"name": "owned", "ownerReferences": [reference]}
        await api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        began = clock.now()
        await api.delete("widget/owner")
        await api.wait_for("configmap/owned", "delete")
        assert (clock.now() - began).total_seconds() < 5  # before the next discovery after 30 s


async def test_custom_resource_is_deleted_with_its_owner(clock: VirtualClock):
    async with memory_cluster(clock=clock) as api:
        await api.apply(WIDGETS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})
        owner = await api.get("configmap/owner")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        owned = widget("owned")
        owned["metadata"]["ownerReferences"] = [reference]
        await api.apply(owned)
        await asyncio.sleep(1)
        await api.delete("configmap/owner")
        await api.wait_for("widget/owned", "delete")


async def test_namespace_deletion_deletes_custom_resources(clock: VirtualClock):
    async with memory_cluster(clock=clock) as api:
        await api.apply(WIDGETS, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        other = widget("away")
        other["metadata"]["namespace"] = "other"
        await api.apply(other, widget("here"))
        await api.delete("namespace/other")
        await api.wait_for("namespace/other", "delete")
        assert (await api.get("widget/here"))["spec"]["color"] == "red"
        with pytest.raises(NotFound):
            await api.get("widget/away", namespace="other")


async def test_informers_stop_after_a_definition_is_deleted(clock: VirtualClock, caplog):
    async with memory_cluster(clock=clock) as api:

        def watched() -> set[str]:
            return {informer.resource.group_resource for informer in api.plane.informers.informers}

        await api.apply(WIDGETS, widget("a"))
        await asyncio.sleep(2)
        assert "widgets.example.com" in watched()
        await api.delete("customresourcedefinition/widgets.example.com")
        await asyncio.sleep(300)
        assert "widgets.example.com" not in watched()
        failed_lists = [record for record in caplog.records if record.getMessage() == "cannot list"]
        assert len(failed_lists) <= 1, "one list may fail before discovery reports the deletion"
        await api.apply(WIDGETS)
        await asyncio.sleep(2)
        assert "widgets.example.com" in watched()
