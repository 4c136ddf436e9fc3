"""Custom resources in a whole cluster in memory and virtual time: what the controllers do with them."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.kube.errors import NotFound
from kubeloop.testing.in_memory import memory_cluster
from kubeloop.testing.virtual_time import VirtualClock
from support.custom_resource_requests import WIDGETS, widget

pytestmark = pytest.mark.virtual_time


async def test_what_a_custom_resource_owns_goes_with_it_however_new_its_kind_is(clock: VirtualClock):
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
        assert (clock.now() - began).total_seconds() < 5  # not with the next round of discovery, after 30


async def test_a_custom_resource_goes_with_what_owns_it(clock: VirtualClock):
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


async def test_a_namespace_takes_its_custom_resources_along(clock: VirtualClock):
    async with memory_cluster(clock=clock) as api:
        await api.apply(WIDGETS, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        away = widget("away")
        away["metadata"]["namespace"] = "other"
        await api.apply(away, widget("here"))
        await api.delete("namespace/other")
        await api.wait_for("namespace/other", "delete")
        assert (await api.get("widget/here"))["spec"]["color"] == "red"
        with pytest.raises(NotFound):
            await api.get("widget/away", namespace="other")


async def test_when_a_definition_goes_nobody_asks_for_its_objects_any_more(clock: VirtualClock, caplog):
    async with memory_cluster(clock=clock) as api:

        def watched() -> set[str]:
            return {informer.resource.group_resource for informer in api.plane.informers.informers}

        await api.apply(WIDGETS, widget("a"))
        await asyncio.sleep(2)
        assert "widgets.example.com" in watched()
        await api.delete("customresourcedefinition/widgets.example.com")
        await asyncio.sleep(300)
        assert "widgets.example.com" not in watched()
        refused = [record for record in caplog.records if record.getMessage() == "cannot list"]
        assert len(refused) <= 1, "it may have asked once before it was known that the kind is gone"
        await api.apply(WIDGETS)
        await asyncio.sleep(2)
        assert "widgets.example.com" in watched()
