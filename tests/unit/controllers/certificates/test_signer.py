"""The CertificateSigningRequest signer with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from msgspec import structs

from kubeloop.controllers.certificates.signer import CertificateSigningRequestSigner
from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from kubeloop.kube.objects.resources import CERTIFICATE_SIGNING_REQUESTS
from kubeloop.process.control_plane.controller_table import default_options
from support.objects.certificate_requests import signing_request

pytestmark = pytest.mark.virtual_time

AUTHORITY = CertificateAuthority.create(datetime.now(UTC))
CLIENT, SERVING = "kubernetes.io/kube-apiserver-client", "kubernetes.io/kubelet-serving"
APPROVED = {"type": "Approved", "status": "True", "reason": "a", "message": "b"}


@pytest.fixture
async def apiserver(fake_apiserver, start):
    """An API server with the signer, which has an authority for client certificates only."""
    context = structs.replace(
        fake_apiserver.context,
        options=default_options(),
        signing_authority=lambda signer: AUTHORITY if signer != SERVING else None,
    )
    await start(fake_apiserver.informers, CertificateSigningRequestSigner(context))
    return fake_apiserver


async def status(api: Any, *conditions: dict[str, str], **changes: Any) -> dict[str, Any]:
    """Create a request, set its conditions, and return its status after a second."""
    path = CERTIFICATE_SIGNING_REQUESTS.path()
    request = signing_request(**{"signer": CLIENT, "common_name": "alice", "organizations": ["dev"], **changes})
    created = api.api.create(path, request)
    await asyncio.sleep(1)
    assert "certificate" not in api.store.get(CERTIFICATE_SIGNING_REQUESTS, "", "csr")["status"]
    api.api.succeed("PUT", f"{path}/csr/approval", {**created, "status": {"conditions": list(conditions)}})
    await asyncio.sleep(1)
    result: dict[str, Any] = api.store.get(CERTIFICATE_SIGNING_REQUESTS, "", "csr")["status"]
    return result


async def test_approved_request_gets_a_certificate(apiserver):
    issued = await status(apiserver, APPROVED)
    certificate = x509.load_pem_x509_certificate(base64.b64decode(issued["certificate"]))
    certificate.verify_directly_issued_by(AUTHORITY.certificate)
    assert certificate.subject.rfc4514_string() == "CN=alice,O=dev"
    assert [condition["type"] for condition in issued["conditions"]] == ["Approved"]


async def test_request_against_the_rules_of_its_signer_fails(apiserver):
    failed = await status(apiserver, APPROVED, usages=["server auth"])
    assert "certificate" not in failed
    condition = failed["conditions"][-1]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "Failed",
        "True",
        "SignerValidationFailure",
        "invalid usage for client certificate: server auth",
    )


@pytest.mark.parametrize(
    ("conditions", "changes"),
    [
        pytest.param([{**APPROVED, "type": "Denied"}], {}, id="denied"),
        pytest.param([], {}, id="not decided"),
        pytest.param([APPROVED], {"signer": "example.com/own"}, id="signer of another controller"),
        pytest.param([APPROVED], {"signer": SERVING}, id="signer without an authority"),
    ],
)
async def test_other_requests_are_left_alone(apiserver, conditions: Any, changes: Any):
    assert "certificate" not in await status(apiserver, *conditions, **changes)
