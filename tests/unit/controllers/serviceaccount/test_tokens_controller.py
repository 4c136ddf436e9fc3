"""Service account token controller: token Secrets of existing and missing accounts."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.serviceaccount.token_secret import AccountReference
from kubeloop.controllers.serviceaccount.tokens_controller import TokensController
from kubeloop.devcluster.api import errors
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.resources import SECRETS, SERVICE_ACCOUNTS
from support.apiserver.fake_apiserver import FakeApiServer

pytestmark = pytest.mark.virtual_time
NAME, UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"


def add_secret(server: FakeApiServer, name: str = "s", account: str = "robot", **annotations: str) -> Any:
    body = {
        "metadata": {"name": name, "annotations": {NAME: account, **annotations}},
        "type": "kubernetes.io/service-account-token",
    }
    return server.api.create(SECRETS.path("ns"), body)


def secret(server: FakeApiServer, name: str = "s") -> Any:
    return server.store.get(SECRETS, "ns", name)


@pytest.fixture
async def tokens(fake_apiserver, start) -> TokensController:
    context = structs.replace(
        fake_apiserver.context, root_ca="PEM", sign_token=lambda claims: f"token of {claims['sub']}"
    )
    controller = TokensController(context)
    await start(fake_apiserver.informers, controller)
    return controller


async def test_secret_of_an_account_is_filled(fake_apiserver, tokens):
    account = fake_apiserver.add(SERVICE_ACCOUNTS, "robot")
    add_secret(fake_apiserver)
    await asyncio.sleep(1)
    stored = secret(fake_apiserver)
    assert {name: b64decode(text) for name, text in stored["data"].items()} == {
        "ca.crt": b"PEM",
        "namespace": b"ns",
        "token": b"token of system:serviceaccount:ns:robot",
    }
    assert stored["metadata"]["annotations"] == {NAME: "robot", UID: account["metadata"]["uid"]}


async def test_filled_secret_is_not_written_again(fake_apiserver, tokens):
    fake_apiserver.add(SERVICE_ACCOUNTS, "robot")
    add_secret(fake_apiserver)
    await asyncio.sleep(1)
    await fake_apiserver.client.patch(SECRETS, "s", {"metadata": {"labels": {"a": "b"}}}, PatchType.MERGE, "ns")
    revision = fake_apiserver.store.revision
    await asyncio.sleep(60)
    assert fake_apiserver.store.revision == revision


async def test_secret_of_another_type_is_ignored(fake_apiserver, tokens):
    fake_apiserver.add(SECRETS, "opaque", annotations={NAME: "missing"})
    await asyncio.sleep(60)
    assert secret(fake_apiserver, "opaque") is not None
    assert fake_apiserver.requests == []


@pytest.mark.parametrize("uid", [{}, {UID: "of-an-earlier-account"}])
async def test_secret_without_its_account_is_deleted(fake_apiserver, tokens, uid):
    if uid:
        fake_apiserver.add(SERVICE_ACCOUNTS, "robot")
    add_secret(fake_apiserver, **uid)
    await asyncio.sleep(1)
    assert secret(fake_apiserver) is None


async def test_deleted_account_takes_its_secrets_along(fake_apiserver, tokens):
    for name in ("robot", "other"):
        fake_apiserver.add(SERVICE_ACCOUNTS, name)
        add_secret(fake_apiserver, f"of-{name}", name)
    await asyncio.sleep(1)
    fake_apiserver.delete(SERVICE_ACCOUNTS, "robot")
    await asyncio.sleep(1)
    assert secret(fake_apiserver, "of-robot") is None
    assert secret(fake_apiserver, "of-other") is not None


async def test_deleted_secret_is_removed_from_its_account(fake_apiserver, tokens):
    fake_apiserver.add(SERVICE_ACCOUNTS, "robot")
    for name in ("s", "t"):
        add_secret(fake_apiserver, name)
    references = {"secrets": [{"name": "s"}, {"name": "t"}]}
    fake_apiserver.api.succeed("PATCH", SERVICE_ACCOUNTS.path("ns", "robot"), references)
    await asyncio.sleep(1)
    for remaining in ([{"name": "t"}], None):
        fake_apiserver.delete(SECRETS, "s" if remaining else "t")
        await asyncio.sleep(1)
        assert fake_apiserver.store.get(SERVICE_ACCOUNTS, "ns", "robot").get("secrets") == remaining


@pytest.mark.parametrize(
    "error", [errors.forbidden(SECRETS, "s", "no"), errors.conflict(SECRETS, "s")], ids=["403", "409"]
)
async def test_failed_write_is_retried_until_it_succeeds(fake_apiserver, tokens, error):
    fake_apiserver.transport.reject = lambda method, path: (
        error if (method, path.partition("?")[0]) == ("PATCH", SECRETS.path("ns", "s")) else None
    )
    fake_apiserver.add(SERVICE_ACCOUNTS, "robot")
    add_secret(fake_apiserver)
    await asyncio.sleep(600)
    assert "data" not in secret(fake_apiserver)
    fake_apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(1200)
    assert secret(fake_apiserver)["data"]


@pytest.mark.parametrize("secrets", [[], [{"name": "other"}]], ids=["no references", "reference to another Secret"])
async def test_account_that_does_not_name_a_deleted_secret_is_not_written(fake_apiserver, tokens, secrets):
    fake_apiserver.add(SERVICE_ACCOUNTS, "robot")
    fake_apiserver.api.succeed("PATCH", SERVICE_ACCOUNTS.path("ns", "robot"), {"secrets": secrets})
    add_secret(fake_apiserver)
    await asyncio.sleep(1)
    fake_apiserver.delete(SECRETS, "s")
    await asyncio.sleep(1)
    assert SERVICE_ACCOUNTS.path("ns", "robot") not in fake_apiserver.written("PATCH")


async def test_new_account_of_the_same_name_keeps_its_secrets(fake_apiserver, tokens):
    """The deleted Secret belonged to the former account."""
    fake_apiserver.add(SERVICE_ACCOUNTS, "robot")
    add_secret(fake_apiserver)
    await asyncio.sleep(1)
    reference = AccountReference("robot", "uid-of-the-former")
    fake_apiserver.api.succeed("PATCH", SERVICE_ACCOUNTS.path("ns", "robot"), {"secrets": [{"name": "s"}]})
    await asyncio.sleep(1)
    await tokens._remove_reference("ns/s", reference)
    assert fake_apiserver.store.get(SERVICE_ACCOUNTS, "ns", "robot")["secrets"] == [{"name": "s"}]
