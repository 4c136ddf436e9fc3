"""A controller of an author on kube-apiserver: finalizer, applied objects, status, and deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kubeloop.controllers.api import NotFound
from kubeloop.controllers.api.resources import CONFIG_MAPS, DEPLOYMENTS
from kubeloop.manager import Manager
from support.comparison.real_apiserver import RealApiServer
from support.controllers.sites import CRD, FINALIZER, SITES, Sites, site

T = TypeVar("T")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def eventually(read: Callable[[], Awaitable[T]], condition: Callable[[T | None], Any]) -> T | None:
    """Return what `read` returns once the condition holds; None stands for no object."""
    async with asyncio.timeout(60):
        while True:
            value: T | None
            try:
                value = await read()
            except NotFound:
                value = None
            if condition(value):
                return value
            await asyncio.sleep(0.05)


async def test_controller_of_an_author_runs_on_kube_apiserver(kube_apiserver: RealApiServer) -> None:
    kube_apiserver.request("POST", DEFINITIONS, CRD)
    try:
        async with Manager([Sites], kubeconfig=str(kube_apiserver.kubeconfig)) as manager:
            client = manager.client
            await eventually(lambda: client.list(SITES, "default"), lambda sites: sites is not None)
            await client.create(site(text="hello", replicas=0))

            async def read() -> Any:
                return await client.get(SITES, "blog", "default")

            created = await eventually(read, lambda it: it.status.conditions)
            assert created.metadata.finalizers == (FINALIZER,)
            (ready,) = created.status.conditions
            assert (ready.type, ready.status, ready.observed_generation) == ("Ready", "True", 1)
            assert (await client.get(CONFIG_MAPS, "blog", "default"))["data"] == {"index.html": "hello"}
            assert (await client.get(DEPLOYMENTS, "blog", "default")).spec.replicas == 0
            await client.delete(created)
            await eventually(read, lambda it: it is None)
    finally:
        kube_apiserver.request("DELETE", f"{DEFINITIONS}/{CRD['metadata']['name']}")
