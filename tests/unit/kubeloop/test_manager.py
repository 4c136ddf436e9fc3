"""Manager: controllers in an asyncio program, leader election, endpoint, shutdown."""

from __future__ import annotations

import asyncio
import functools
import random
from typing import Any

import aiohttp
import pytest

from kubeloop.controllers.api import Controller, Request, Watches, to_self
from kubeloop.kube.objects.resources import CONFIG_MAPS, DEPLOYMENTS, LEASES
from kubeloop.kube.user_error import UserError
from kubeloop.manager import ElectionSettings, LeaseLost, Manager
from kubeloop.testing import virtual_time
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.virtual_time import VirtualClock
from support.apiserver.api_requests import InProcessApi
from support.controllers.sites import CRD, SITES, Sites, site


def new_server(clock: VirtualClock | None = None) -> InProcessApi:
    server = InProcessApi(**({"clock": clock} if clock else {}))
    server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
    return server


def manager_over(server: InProcessApi, controllers: Any, **options: Any) -> Manager:
    clock = server.server.clock
    return Manager(
        controllers, transport=MemoryTransport(server.server.handle), clock=clock, rng=random.Random(1), **options
    )


def test_controllers_run_for_the_length_of_the_context():
    async def scenario() -> None:
        server = new_server(VirtualClock())
        async with manager_over(server, [Sites, "deployment"]) as manager:
            await manager.wait_synced()
            await manager.client.create(site())
            await asyncio.sleep(5)
            assert server.server.store.get(DEPLOYMENTS, "default", "blog")
            assert manager.elected.is_set()
        server.succeed("DELETE", CONFIG_MAPS.path("default", "blog"))
        await asyncio.sleep(5)
        assert server.server.store.get(CONFIG_MAPS, "default", "blog") is None

    virtual_time.run(scenario())


def test_replicas_take_turns_and_release_the_lease():
    def election(identity: str) -> ElectionSettings:
        return ElectionSettings("default", "sites", identity)

    async def scenario() -> None:
        server = new_server(VirtualClock())
        async with manager_over(server, [Sites], election=election("b")) as second:
            async with manager_over(server, [functools.partial(Sites)], election=election("c")) as first:
                await asyncio.sleep(5)
                leads = [second.elected.is_set(), first.elected.is_set()]
                assert sorted(leads) == [False, True]
            await asyncio.sleep(20)
            assert second.elected.is_set()
        assert server.server.store.get(LEASES, "default", "sites")["spec"]["holderIdentity"] == ""

    virtual_time.run(scenario())


def test_lost_lease_ends_the_controllers_with_an_error():
    async def scenario() -> None:
        server = new_server(VirtualClock())
        async with manager_over(server, [Sites], election=ElectionSettings("default", "sites", "a")) as manager:
            await asyncio.sleep(5)
            server.succeed("PATCH", LEASES.path("default", "sites"), {"spec": {"holderIdentity": "thief"}})
            await manager.wait()

    with pytest.raises(LeaseLost, match="held by thief"):
        virtual_time.run(scenario())


async def test_endpoint_serves_health_and_controller_metrics():
    server = new_server()
    async with manager_over(server, [Sites], endpoint=("127.0.0.1", 0)) as manager:
        await asyncio.wait_for(manager.wait_synced(), 30)
        server.create(SITES.path("default"), site())
        async with aiohttp.ClientSession() as session:
            for path in ("/healthz", "/readyz"):
                async with session.get(manager.url + path) as response:
                    assert response.status == 200
            while True:
                async with session.get(f"{manager.url}/metrics") as response:
                    text = await response.text()
                if 'controller_runtime_reconcile_total{controller="sites",result="success"} 0' not in text:
                    break
                await asyncio.sleep(0.05)
    assert 'workqueue_adds_total{name="sites"}' in text
    assert 'controller_runtime_active_workers{controller="sites"}' in text
    assert "rest_client_requests_total" in text


def test_controllers_that_create_no_pods_do_not_watch_pods():
    async def scenario() -> set[str]:
        server = new_server(VirtualClock())
        async with manager_over(server, [Sites]) as manager:
            await manager.wait_synced()
            return {informer.resource.plural for informer in manager._plane.informers.informers}

    assert virtual_time.run(scenario()) == {"sites", "configmaps", "deployments"}


class CopiedMaps(Controller):
    """Copies the ConfigMaps of the cluster "west" that have a label."""

    name = "copied-maps"
    watches = (Watches(CONFIG_MAPS, to_self, cluster="west", label_selector="copied"),)

    async def reconcile(self, request: Request) -> None:
        source = self.cluster("west").cache.get(CONFIG_MAPS, request)
        if source is not None:
            metadata = {"name": request.name, "namespace": request.namespace}
            await self.client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


def test_objects_of_another_cluster_are_watched():
    async def scenario() -> None:
        server, west = new_server(VirtualClock()), InProcessApi(clock=VirtualClock())
        west.create(CONFIG_MAPS.path("default"), {"metadata": {"name": "settings", "labels": {"copied": ""}}})
        clusters = {"west": MemoryTransport(west.server.handle)}
        async with manager_over(server, [CopiedMaps], clusters=clusters):
            await asyncio.sleep(5)
        assert server.server.store.get(CONFIG_MAPS, "default", "settings")

    virtual_time.run(scenario())


def test_two_controllers_of_one_name_are_rejected():
    async def scenario() -> None:
        async with manager_over(new_server(VirtualClock()), [Sites, functools.partial(Sites)]):
            pass

    with pytest.raises(UserError, match="two controllers named 'sites'"):
        virtual_time.run(scenario())
