"""The CertificateSigningRequest approver with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.certificates.approver import CertificateSigningRequestApprover, _is_decided
from kubeloop.kube.objects.resources import CERTIFICATE_SIGNING_REQUESTS
from support.objects.certificate_requests import signing_request

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def apiserver(fake_apiserver, start):
    await start(fake_apiserver.informers, CertificateSigningRequestApprover(fake_apiserver.context))
    return fake_apiserver


async def conditions(api: Any, **changes: Any) -> list[tuple[str, str, str]]:
    api.api.create(CERTIFICATE_SIGNING_REQUESTS.path(), signing_request(**changes))
    await asyncio.sleep(1)
    status = api.store.get(CERTIFICATE_SIGNING_REQUESTS, "", "csr")["status"]
    return [(it["type"], it["reason"], it["message"]) for it in status.get("conditions", ())]


async def test_request_of_a_kubelet_is_approved(apiserver):
    message = "Auto approving kubelet client certificate after SubjectAccessReview."
    assert await conditions(apiserver) == [("Approved", "AutoApproved", message)]


async def test_request_of_another_client_is_not_approved(apiserver):
    assert await conditions(apiserver, common_name="admin") == []


async def test_request_without_permission_is_reviewed_again(apiserver, monkeypatch):
    allowed: list[bool] = [False]

    async def review(_self: Any, _request: Any, _permission: Any) -> bool:
        return allowed[0]

    monkeypatch.setattr(CertificateSigningRequestApprover, "_is_allowed", review)
    assert await conditions(apiserver) == []
    allowed[0] = True
    await asyncio.sleep(61)
    status = apiserver.store.get(CERTIFICATE_SIGNING_REQUESTS, "", "csr")["status"]
    assert [it["type"] for it in status["conditions"]] == ["Approved"]


@pytest.mark.parametrize(
    ("status", "decided"),
    [
        (None, False),
        ({}, False),
        ({"conditions": None}, False),
        ({"conditions": [{"type": "Failed"}]}, False),
        ({"conditions": [{"type": "Approved"}]}, True),
        ({"conditions": [{"type": "Failed"}, {"type": "Denied"}]}, True),
        ({"certificate": ""}, False),
        ({"certificate": "Y2VydA=="}, True),
    ],
)
async def test_decided_request(status, decided):
    assert _is_decided({"status": status}) is decided
