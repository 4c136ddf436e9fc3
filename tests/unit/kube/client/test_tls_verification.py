"""Verification of certificates: what Go's crypto/x509 accepts, and its error texts."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from kubeloop.kube.client import tls_verification
from kubeloop.kube.client.asyncio_transport import AsyncioTransport
from kubeloop.kube.client.endpoint import endpoint_from_url
from kubeloop.kube.client.tls_verification import (
    CertificateError,
    client_context,
    load_certificates,
    verification_message,
    verify_certificate,
)
from kubeloop.kube.client.transport import HttpRequest, TransportError
from support.apiserver.certificates import NOW, Issued, issue

HOST = "web.default.svc"
UNKNOWN = "x509: certificate signed by unknown authority"
CA = issue("ca", authority=True)
LEAF = issue("leaf", CA, hosts=(HOST,))
SELF_SIGNED = issue("leaf", hosts=(HOST,))
SAME_SUBJECT_CA = issue("same", authority=True)
SAME_SUBJECT = issue("same", SAME_SUBJECT_CA, hosts=(HOST,))
INTERMEDIATE = issue("intermediate", CA, authority=True)
BELOW = issue("leaf", INTERMEDIATE, hosts=(HOST,))
NO_AUTHORITY = issue("intermediate", CA)
SHORT_CA = issue("ca", authority=True, path_length=0)
SHORT_INTERMEDIATE = issue("intermediate", SHORT_CA, authority=True)
OLD_CA = issue("ca", authority=True, end=NOW - timedelta(minutes=1))
OTHER_CA = issue("ca", authority=True)
OTHER_NAME = issue("other", CA, hosts=("other",))
CONSTRAINED_CA = issue(
    "ca",
    authority=True,
    extensions=(
        x509.NameConstraints(
            [x509.DNSName("default.svc"), x509.IPAddress(ip_network("10.0.0.0/8"))], [x509.DNSName("x.default.svc")]
        ),
    ),
)
CANNOT_SIGN = "x509: invalid signature: parent certificate cannot sign this kind of certificate"
CLIENT_ONLY = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
SERVER_AND_CLIENT = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
ANY_USAGE = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE])
NO_SIGNING = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
SIGNING = x509.KeyUsage(False, False, False, False, False, True, False, False, False)
CUSTOM = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), b"\x05\x00")


def _hint(reason: str, authority: str) -> str:
    candidate = f'while trying to verify candidate authority certificate "{authority}"'
    return f'{UNKNOWN} (possibly because of "{reason}" {candidate})'


def _problem(chain: list[Issued], roots: list[Issued], host: str = HOST, **options: Any) -> str:
    """Return the error of a verification; "" if the certificate is accepted."""
    try:
        verify_certificate(
            [entry.certificate for entry in chain], [entry.certificate for entry in roots], NOW, host=host, **options
        )
    except CertificateError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("chain", "roots"),
    [
        pytest.param([LEAF], [CA], id="signed by a root"),
        pytest.param([SELF_SIGNED], [SELF_SIGNED], id="the certificate itself is trusted"),
        pytest.param([LEAF], [LEAF], id="the certificate of another authority is trusted itself"),
        pytest.param([SAME_SUBJECT], [SAME_SUBJECT_CA], id="authority with the same subject"),
        pytest.param([SAME_SUBJECT, SAME_SUBJECT_CA], [SAME_SUBJECT_CA], id="sent with the authority of its subject"),
        pytest.param([BELOW, INTERMEDIATE], [CA], id="intermediate"),
        pytest.param([BELOW], [INTERMEDIATE], id="intermediate as root"),
        pytest.param([BELOW, INTERMEDIATE, CA], [OTHER_CA, CA], id="several roots with one name"),
        pytest.param([issue("l", SHORT_CA, hosts=(HOST,))], [SHORT_CA], id="path length 0"),
        pytest.param([issue("l", CA, hosts=(HOST,), extensions=(SERVER_AND_CLIENT,))], [CA], id="usage server"),
        pytest.param([issue("l", CA, hosts=(HOST,), extensions=(ANY_USAGE,))], [CA], id="any usage"),
        pytest.param([issue("l", CONSTRAINED_CA, hosts=(HOST, "10.1.2.3"))], [CONSTRAINED_CA], id="permitted names"),
    ],
)
def test_certificates_that_go_accepts_are_accepted(chain: list[Issued], roots: list[Issued]):
    assert _problem(chain, roots) == ""


@pytest.mark.parametrize(
    ("chain", "roots", "error"),
    [
        pytest.param([LEAF], [INTERMEDIATE], UNKNOWN, id="other root"),
        pytest.param([SELF_SIGNED], [LEAF],
                     _hint(CANNOT_SIGN, "leaf"),
                     id="same subject as a trusted certificate"),
        pytest.param([BELOW], [CA], UNKNOWN, id="intermediate missing"),
        pytest.param([LEAF], [OTHER_CA],
                     _hint("x509: signature verification failure", "ca"), id="root with the same name"),
        pytest.param([issue("l", SELF_SIGNED, hosts=(HOST,))], [SELF_SIGNED],
                     _hint(CANNOT_SIGN, "leaf"), id="no authority"),
        pytest.param([issue("l", NO_AUTHORITY, hosts=(HOST,)), NO_AUTHORITY], [CA],
                     _hint(CANNOT_SIGN, "intermediate"),
                     id="intermediate is no authority"),
        pytest.param([issue("l", SHORT_INTERMEDIATE, hosts=(HOST,)), SHORT_INTERMEDIATE], [SHORT_CA],
                     _hint("x509: too many intermediates for path length constraint", "ca"), id="path too long"),
        pytest.param([issue("l", hosts=(HOST,), end=NOW - timedelta(seconds=1))], [CA],
                     "x509: certificate has expired or is not yet valid: current time "
                     f"{NOW:%Y-%m-%dT%H:%M:%SZ} is after {NOW - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}",
                     id="expired"),
        pytest.param([issue("l", hosts=(HOST,), begin=NOW + timedelta(seconds=1))], [CA],
                     "x509: certificate has expired or is not yet valid: current time "
                     f"{NOW:%Y-%m-%dT%H:%M:%SZ} is before {NOW + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}",
                     id="not yet valid"),
        pytest.param([issue("l", CA, hosts=(HOST,), extensions=(CLIENT_ONLY,))], [CA],
                     "x509: certificate specifies an incompatible key usage", id="usage client"),
        pytest.param([issue("l", CA, hosts=(HOST,), extensions=(CUSTOM,))], [CA],
                     "x509: unhandled critical extension", id="critical extension"),
        pytest.param([issue("l", CONSTRAINED_CA, hosts=(HOST, "a.other.svc"))], [CONSTRAINED_CA],
                     "x509: a root or intermediate certificate is not authorized to sign for this name: "
                     'DNS name "a.other.svc" is not permitted by any constraint', id="name not permitted"),
        pytest.param([issue("l", CONSTRAINED_CA, hosts=(HOST, "x.default.svc"))], [CONSTRAINED_CA],
                     "x509: a root or intermediate certificate is not authorized to sign for this name: "
                     'DNS name "x.default.svc" is excluded by constraint "x.default.svc"', id="name excluded"),
        pytest.param([issue("l", CONSTRAINED_CA, hosts=(HOST, "192.0.2.1"))], [CONSTRAINED_CA],
                     "x509: a root or intermediate certificate is not authorized to sign for this name: "
                     'IP address "192.0.2.1" is not permitted by any constraint', id="address not permitted"),
    ],
)  # fmt: skip
def test_certificates_that_go_refuses_have_its_text(chain: list[Issued], roots: list[Issued], error: str):
    assert _problem(chain, roots) == error


@pytest.mark.parametrize(("usage", "accepted"), [(SIGNING, True), (NO_SIGNING, False)])
def test_key_usage_of_an_authority_counts(usage: x509.KeyUsage, accepted: bool):
    authority = issue("ca", authority=True, extensions=(usage,))
    problem = _problem([issue("l", authority, hosts=(HOST,))], [authority])
    assert ("cannot sign" in problem) is not accepted


def test_expired_authority_is_refused():
    problem = _problem([issue("l", OLD_CA, hosts=(HOST,))], [OLD_CA])
    assert problem.startswith(f'{UNKNOWN} (possibly because of "x509: certificate has expired')


def test_client_certificate_needs_the_usage_of_clients():
    client = issue("alice", CA, extensions=(CLIENT_ONLY,))
    assert _problem([client], [CA], "", client=True) == ""
    server = issue("web", CA, extensions=(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),))
    assert _problem([server], [CA], "", client=True) == "x509: certificate specifies an incompatible key usage"


@pytest.mark.parametrize(
    ("hosts", "host", "error"),
    [
        (("a.b.svc", "B.svc"), "b.SVC", ""),
        (("*.b.svc",), "a.b.svc", ""),
        (("*.b.svc",), "b.svc", "x509: certificate is valid for *.b.svc, not b.svc"),
        (("*.b.svc",), "x.a.b.svc", "x509: certificate is valid for *.b.svc, not x.a.b.svc"),
        (("a.svc", "b.svc", "127.0.0.1"), "c.svc", "x509: certificate is valid for a.svc, b.svc, not c.svc"),
        (("127.0.0.1",), "127.0.0.1", ""),
        (("127.0.0.1", "10.0.0.1"), "::1", "x509: certificate is valid for 127.0.0.1, 10.0.0.1, not ::1"),
        (("a.svc",), "127.0.0.1",
         "x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"),
        ((), "b.svc", "x509: certificate is not valid for any names, but wanted to match b.svc"),
        ((), "leaf", "x509: certificate relies on legacy Common Name field, use SANs instead"),
        (tuple(f"a{i}.svc" for i in range(100)), "b", "x509: certificate is valid for 100 names, but none matched b"),
    ],
)  # fmt: skip
def test_host_is_matched_with_names_of_the_certificate(hosts: tuple[str, ...], host: str, error: str):
    leaf = issue("leaf", hosts=hosts)
    assert _problem([leaf], [leaf], host) == error


def test_bundle_may_contain_certificates_that_cannot_be_parsed():
    broken = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
    assert load_certificates(f"{CA.pem}text\n{broken}{LEAF.pem}") == [CA.certificate, LEAF.certificate]


# --- connections ------------------------------------------------------------------------------------------------------


async def _handshake(server: Issued, ca: str | None, *intermediates: Issued, verify: bool = True) -> str:
    """Connect to a server with the certificate, send and receive a line; return Go's text if it is refused."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    listening = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server.server_context(*intermediates))
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=client_context(ca, verify=verify), server_hostname=HOST
            )
        except ssl.SSLCertVerificationError as error:
            return verification_message(error)
        writer.write(b"line\n")
        assert await reader.read() == b"line\n"
        writer.close()
        return ""


async def test_handshake_verifies_with_the_given_authorities():
    assert await _handshake(LEAF, CA.pem) == ""
    assert await _handshake(SAME_SUBJECT, SAME_SUBJECT_CA.pem) == ""
    assert await _handshake(SELF_SIGNED, SELF_SIGNED.pem) == ""
    assert await _handshake(BELOW, CA.pem, INTERMEDIATE) == ""
    assert await _handshake(LEAF, INTERMEDIATE.pem) == UNKNOWN
    other = issue("leaf", CA, hosts=("other",))
    assert await _handshake(other, CA.pem) == f"x509: certificate is valid for other, not {HOST}"


@pytest.mark.parametrize(
    ("server", "roots", "parsed", "problem"),
    [
        pytest.param(LEAF, CA, False, "", id="accepted by OpenSSL"),
        pytest.param(SAME_SUBJECT, SAME_SUBJECT_CA, True, "", id="accepted by Go alone"),
        pytest.param(LEAF, INTERMEDIATE, True, UNKNOWN, id="refused by both"),
        pytest.param(OTHER_NAME, CA, True, f"x509: certificate is valid for other, not {HOST}", id="other name"),
    ],
)
async def test_transport_parses_certificates_only_if_openssl_refuses_them(server, roots, parsed, problem, monkeypatch):
    calls: list[object] = []
    parse = tls_verification.load_certificates
    monkeypatch.setattr(tls_verification, "load_certificates", lambda pem: (calls.append(pem), parse(pem))[1])

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # the client has refused the certificate
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async with await asyncio.start_server(respond, "127.0.0.1", 0, ssl=server.server_context()) as listening:
        port = listening.sockets[0].getsockname()[1]
        context = client_context(roots.pem, openssl_first=True)
        transport = AsyncioTransport(endpoint_from_url(f"https://127.0.0.1:{port}", context, tls_name=HOST))
        refused = pytest.raises(TransportError, match=re.escape(problem)) if problem else contextlib.nullcontext()
        with refused:
            assert (await transport.send(HttpRequest("GET", "/", {}))).body == b"ok"
        await transport.close()
    assert bool(calls) is parsed


async def test_handshake_without_authorities_uses_those_of_the_system():
    assert await _handshake(LEAF, None) == UNKNOWN
    assert await _handshake(LEAF, None, verify=False) == ""
    assert await _handshake(LEAF, CA.pem, verify=False) == ""


def test_bundle_without_certificate_is_an_error():
    with pytest.raises(ssl.SSLError):
        client_context("none")
