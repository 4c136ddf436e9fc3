"""The server's certificates: names, validity, replacement of stored ones; certificates of clients in the handshake."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from kubeloop.devcluster.server import tls
from kubeloop.devcluster.server.apiserver import ApiServer, ServingSettings
from kubeloop.devcluster.server.http import HttpServer
from kubeloop.devcluster.server.listener import listen, listening_socket
from kubeloop.devcluster.server.tls import ServerCertificate, create_certificate, stored_certificate
from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from kubeloop.kube.clock import SystemClock
from support.objects.client_certificates import client_certificate, intermediate_authority
from support.simulation.set_clock import SetClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def parsed(certificate: ServerCertificate) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate.pem)


def test_certificate_is_valid_for_loopback_names_for_a_year():
    certificate = create_certificate(SetClock(NOW))
    names = parsed(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert parsed(certificate).not_valid_before_utc == NOW - timedelta(minutes=5)
    assert parsed(certificate).not_valid_after_utc == NOW + timedelta(days=365)
    assert not parsed(certificate).extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_authority_has_no_key_in_its_certificate_and_can_be_trusted():
    authority = create_certificate(SetClock(NOW)).authority
    assert "PRIVATE KEY" not in authority.certificate_pem
    assert len(ssl.create_default_context(cadata=authority.certificate_pem).get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("days", "is_same", "is_same_authority"),
    [
        pytest.param(0, True, True, id="new"),
        pytest.param(334, True, True, id="more than 30 days left"),
        pytest.param(336, False, True, id="less than 30 days left"),
        pytest.param(400, False, True, id="expired"),
        pytest.param(3284, False, True, id="authority has more than a year left"),
        pytest.param(3286, False, False, id="authority has less than a year left"),
    ],
)
def test_stored_certificates_are_replaced_before_they_expire(
    tmp_path: Path, days: int, is_same: bool, is_same_authority: bool
):
    clock = SetClock(NOW)
    first = stored_certificate(tmp_path / "ca.pem", clock)
    clock.moment += timedelta(days=days)
    second = stored_certificate(tmp_path / "ca.pem", clock)
    assert (first.pem == second.pem) == is_same
    assert (first.authority.certificate == second.authority.certificate) == is_same_authority
    assert parsed(second).not_valid_after_utc > clock.moment + timedelta(days=30)


def test_stored_certificate_of_another_authority_is_replaced(tmp_path: Path):
    clock = SetClock(NOW)
    first = stored_certificate(tmp_path / "ca.pem", clock)
    (tmp_path / "ca.pem").unlink()
    second = stored_certificate(tmp_path / "ca.pem", clock)
    parsed(second).verify_directly_issued_by(second.authority.certificate)
    assert second.pem != first.pem


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[int, CertificateAuthority]]:
    """Run a server with TLS; yield its port and the authority of its own and of its clients' certificates."""
    certificate = create_certificate(SystemClock())
    settings = ServingSettings(client_ca=certificate.authority.certificate_pem)
    api = ApiServer(clock=SystemClock(), rng=random.Random(1), token="right", settings=settings)
    with listening_socket(0) as listening:
        async with HttpServer(api) as http, asyncio.TaskGroup() as group:
            task = group.create_task(listen(listening, http, certificate.context))
            yield listening.getsockname()[1], certificate.authority
            task.cancel()


async def who_am_i(port: int, context: ssl.SSLContext | None, *headers: str) -> tuple[int, Any]:
    """Return the status and the user of a SelfSubjectReview; the message of a failed one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    body = '{"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}'
    lines = [
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1", "Host: x", "Content-Type: application/json",
        "Connection: close", f"Content-Length: {len(body)}", *headers, "", body,
    ]  # fmt: skip
    writer.write("\r\n".join(lines).encode())
    head, _, content = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    response = json.loads(content)
    return int(head.split()[1]), response.get("message") or response["status"]["userInfo"]


async def test_client_is_the_user_of_its_certificate():
    async with serving() as (port, authority):
        certificate = client_certificate(authority, "alice", ["dev"])
        status, user = await who_am_i(port, certificate.context(authority.certificate_pem))
    assert (status, user["username"], user["groups"]) == (201, "alice", ["dev", "system:authenticated"])


async def test_intermediate_certificates_are_received():
    async with serving() as (port, authority):
        between = intermediate_authority(authority, datetime.now(UTC))
        certificate = client_certificate(authority, intermediate=between)
        status, user = await who_am_i(port, certificate.context(authority.certificate_pem))
    assert (status, user["username"]) == (201, "alice")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param((), 401, id="certificate only"),
        pytest.param(("Authorization: Bearer right",), 201, id="with a valid token"),
        pytest.param(("Authorization: Bearer wrong",), 401, id="with an invalid token"),
    ],
)
async def test_handshake_accepts_and_request_refuses_unknown_certificates(headers: tuple[str, ...], status: int):
    other = CertificateAuthority.create(datetime.now(UTC))
    async with serving() as (port, authority):
        context = client_certificate(other).context(authority.certificate_pem)
        assert (await who_am_i(port, context, *headers))[0] == status


async def test_client_without_certificate_needs_a_token():
    async with serving() as (port, authority):
        context = ssl.create_default_context(cadata=authority.certificate_pem)
        assert (await who_am_i(port, context))[0] == 403
        assert (await who_am_i(port, context, "Authorization: Bearer right"))[0] == 201
        assert (await who_am_i(port, None, "Authorization: Bearer right"))[0] == 201


async def test_certificate_counts_before_the_token():
    async with serving() as (port, authority):
        context = client_certificate(authority).context(authority.certificate_pem)
        assert (await who_am_i(port, context, "Authorization: Bearer right"))[1]["username"] == "alice"


async def test_known_certificates_are_accepted_where_openssl_cannot_be_called(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tls, "_openssl_function", lambda _name: None)
    async with serving() as (port, authority):
        assert (await who_am_i(port, client_certificate(authority).context(authority.certificate_pem)))[0] == 201
        other = client_certificate(CertificateAuthority.create(datetime.now(UTC)))
        with pytest.raises((ssl.SSLError, ConnectionError, ValueError)):
            await who_am_i(port, other.context(authority.certificate_pem))
