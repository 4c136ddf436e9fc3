"""Service account controller: the ServiceAccount `default` of every active namespace."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.api.runner import ControllerRunner, new_controller
from kubeloop.controllers.serviceaccount.service_accounts_controller import ServiceAccountsController
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import NAMESPACES, SERVICE_ACCOUNTS
from support.apiserver.fake_apiserver import FakeApiServer

pytestmark = pytest.mark.virtual_time


def accounts(server: FakeApiServer) -> list[tuple[str, str]]:
    metadata: list[dict[str, Any]] = [account["metadata"] for account in server.store.list(SERVICE_ACCOUNTS)]
    return sorted((it["namespace"], it["name"]) for it in metadata if it["namespace"] in ("ns", "new"))


@pytest.fixture
async def controller(fake_apiserver, start) -> ControllerRunner:
    controller = new_controller(ServiceAccountsController, fake_apiserver.context)
    await start(fake_apiserver.informers, controller)
    return controller


async def test_every_namespace_gets_an_account_also_after_its_deletion(fake_apiserver, controller):
    assert accounts(fake_apiserver) == [("ns", "default")]
    fake_apiserver.add(NAMESPACES, "new")
    await asyncio.sleep(1)
    assert accounts(fake_apiserver) == [("new", "default"), ("ns", "default")]
    await fake_apiserver.client.delete(SERVICE_ACCOUNTS, "default", "ns")
    await asyncio.sleep(1)
    assert accounts(fake_apiserver) == [("new", "default"), ("ns", "default")]


async def test_terminating_namespace_gets_no_account(fake_apiserver, controller):
    await fake_apiserver.client.delete(NAMESPACES, "ns")
    await fake_apiserver.client.delete(SERVICE_ACCOUNTS, "default", "ns")
    created = len(fake_apiserver.written("POST"))
    await asyncio.sleep(60)
    assert accounts(fake_apiserver) == []
    assert len(fake_apiserver.written("POST")) == created, "none is requested"


async def test_account_that_exists_is_not_created_again(fake_apiserver, controller):
    created = len(fake_apiserver.written("POST"))
    labels = {"metadata": {"labels": {"team": "x"}}}
    fake_apiserver.api.succeed("PATCH", NAMESPACES.path("", "ns"), labels, content_type="application/merge-patch+json")
    await asyncio.sleep(5)
    assert len(fake_apiserver.written("POST")) == created


async def test_refused_account_is_created_by_a_retry(fake_apiserver, controller):
    fake_apiserver.transport.reject = lambda method, path: (
        errors.forbidden(SERVICE_ACCOUNTS, "default", "not now") if method == "POST" else None
    )
    fake_apiserver.add(NAMESPACES, "new")
    await asyncio.sleep(1)
    assert accounts(fake_apiserver) == [("ns", "default")]
    fake_apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(60)
    assert accounts(fake_apiserver) == [("new", "default"), ("ns", "default")]
