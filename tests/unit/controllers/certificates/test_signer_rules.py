"""The signers of Kubernetes: requests that they refuse, with kube-controller-manager's reasons, and certificates."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeloop.controllers.certificates.signer_rules import (
    parsed_request,
    request_problem,
    requested_seconds,
    sign,
)
from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from support.objects.certificate_requests import signing_request

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DNS, EMAIL = x509.DNSName("a.example"), x509.RFC822Name("a@example.com")
IP, URI = x509.IPAddress(ip_address("10.0.0.1")), x509.UniformResourceIdentifier("https://a.example")
CLIENT, SERVING = ("digital signature", "client auth"), ("digital signature", "server auth")
RSA_CLIENT = (*CLIENT, "key encipherment")


def request(names: Sequence[x509.GeneralName] = (), **changes: Any) -> x509.CertificateSigningRequest:
    return parsed_request(signing_request(names=names, **changes))


@pytest.mark.parametrize(
    ("usages", "problem"),
    [
        pytest.param(("client auth",), "", id="client auth"),
        pytest.param(RSA_CLIENT, "", id="all that are permitted"),
        pytest.param((*CLIENT, "server auth"), "invalid usage for client certificate: server auth", id="another usage"),
        pytest.param(
            ("digital signature",), "missing required usage for client certificate: client auth", id="no client auth"
        ),
    ],
)
def test_usages_of_client_certificates(usages: Sequence[str], problem: str):
    signer = "kubernetes.io/kube-apiserver-client"
    assert request_problem(signer, request(common_name="alice", organizations=["dev"]), usages) == problem


@pytest.mark.parametrize(
    ("changes", "usages", "problem"),
    [
        pytest.param({}, CLIENT, "", id="client auth and signature"),
        pytest.param({}, RSA_CLIENT, "", id="key encipherment"),
        pytest.param({"organizations": ["dev"]}, CLIENT, "subject organization is not system:nodes", id="organization"),
        pytest.param(
            {"organizations": ["system:nodes", "dev"]},
            CLIENT,
            "subject organization is not system:nodes",
            id="two organizations",
        ),
        pytest.param({"names": [DNS]}, CLIENT, "DNS subjectAltNames are not allowed", id="DNS name"),
        pytest.param({"names": [EMAIL]}, CLIENT, "Email subjectAltNames are not allowed", id="e-mail address"),
        pytest.param({"names": [IP]}, CLIENT, "IP subjectAltNames are not allowed", id="address"),
        pytest.param({"names": [URI]}, CLIENT, "URI subjectAltNames are not allowed", id="URI"),
        pytest.param(
            {"common_name": "alice"}, CLIENT, "subject common name does not begin with system:node:", id="common name"
        ),
        pytest.param({}, SERVING, "usages did not match [client auth digital signature key encipherment]", id="usages"),
    ],
)
def test_requests_of_kubelets_for_client_certificates(changes: Any, usages: Sequence[str], problem: str):
    assert request_problem("kubernetes.io/kube-apiserver-client-kubelet", request(**changes), usages) == problem


@pytest.mark.parametrize(
    ("changes", "usages", "problem"),
    [
        pytest.param({"names": [DNS]}, SERVING, "", id="DNS name"),
        pytest.param({"names": [IP]}, (*SERVING, "key encipherment"), "", id="address, key encipherment"),
        pytest.param({}, SERVING, "DNS or IP subjectAltName is required", id="no name"),
        pytest.param({"names": [DNS, EMAIL]}, SERVING, "Email subjectAltNames are not allowed", id="e-mail address"),
        pytest.param({"names": [DNS, URI]}, SERVING, "URI subjectAltNames are not allowed", id="URI"),
        pytest.param(
            {"names": [DNS], "organizations": []},
            SERVING,
            "subject organization is not system:nodes",
            id="organization",
        ),
        pytest.param(
            {"names": [DNS], "common_name": "a"},
            CLIENT,
            "usages did not match [digital signature key encipherment server auth]",
            id="usages before the common name",
        ),
        pytest.param(
            {"names": [DNS], "common_name": "a"},
            SERVING,
            "subject common name does not begin with system:node:",
            id="common name",
        ),
    ],
)
def test_requests_of_kubelets_for_serving_certificates(changes: Any, usages: Sequence[str], problem: str):
    assert request_problem("kubernetes.io/kubelet-serving", request(**changes), usages) == problem


def test_legacy_signer_accepts_every_request():
    assert request_problem("kubernetes.io/legacy-unknown", request(common_name="a"), ["cert sign"]) == ""


@pytest.mark.parametrize(
    ("requested", "longest", "seconds"),
    [
        pytest.param(None, 1000, 1000, id="default"),
        pytest.param(1000, 2000, 1000, id="less"),
        pytest.param(3000, 2000, 2000, id="more"),
        pytest.param(60, 2000, 600, id="at least ten minutes"),
        pytest.param(600, 300, 300, id="never more than the signer's"),
    ],
)
def test_validity_is_the_requested_one_within_limits(requested: int | None, longest: int, seconds: int):
    assert requested_seconds(requested, longest) == seconds


def signed(
    content: x509.CertificateSigningRequest, usages: Sequence[str] = CLIENT, validity: timedelta = timedelta(days=1)
) -> x509.Certificate:
    pem = sign(content, usages, validity.total_seconds(), CertificateAuthority.create(NOW), NOW)
    return x509.load_pem_x509_certificate(pem.encode())


@pytest.mark.parametrize(
    ("validity", "end"),
    [
        pytest.param(timedelta(hours=8), NOW + timedelta(hours=8, minutes=-5), id="from eight hours backdated"),
        pytest.param(timedelta(hours=7), NOW + timedelta(hours=7), id="short"),
        pytest.param(timedelta(days=5000), NOW + timedelta(days=3650), id="as long as the authority"),
    ],
)
def test_certificate_begins_five_minutes_ago(validity: timedelta, end: datetime):
    certificate = signed(request(), validity=validity)
    assert (certificate.not_valid_before_utc, certificate.not_valid_after_utc) == (NOW - timedelta(minutes=5), end)


def test_certificate_has_subject_key_names_and_usages_of_the_request():
    other = x509.OtherName(x509.ObjectIdentifier("1.2.3"), b"\x04\x00")
    content = request(names=[IP, DNS, other], common_name="system:node:a", organizations=["dev", "ops"])
    certificate = signed(content, ["server auth", "client auth", "digital signature", "s/mime", "email protection"])
    extensions = certificate.extensions
    assert certificate.subject.rfc4514_string() == "CN=system:node:a,O=dev+O=ops"
    assert certificate.public_key() == content.public_key()
    assert list(extensions.get_extension_for_class(x509.SubjectAlternativeName).value) == [DNS, IP]
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert (usage.value.digital_signature, usage.value.key_encipherment) == (True, False)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.EMAIL_PROTECTION]
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == purposes
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_certificate_without_usages_has_no_usage_extension():
    kinds = {type(extension.value) for extension in signed(request(), []).extensions}
    assert kinds == {x509.BasicConstraints, x509.AuthorityKeyIdentifier}


def test_requests_that_cannot_be_signed():
    with pytest.raises(ValueError, match="unrecognized usage values: \\['fishing'\\]"):
        signed(request(), ["fishing"])
    with pytest.raises(ValueError, match="the signer has expired"):
        sign(request(), CLIENT, timedelta(days=1), CertificateAuthority.create(NOW), NOW + timedelta(days=3650))
    with pytest.raises(ValueError, match="unable to verify certificate request signature"):
        signed(tampered(request()))
    with pytest.raises(ValueError, match="PEM"):
        parsed_request({"spec": {"request": base64.b64encode(b"x").decode()}})


def tampered(content: x509.CertificateSigningRequest) -> x509.CertificateSigningRequest:
    """Return a request whose common name was changed after it was signed."""
    der = content.public_bytes(Encoding.DER)
    name = content.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    assert isinstance(name, str)
    return x509.load_der_x509_csr(der.replace(name.encode(), name[::-1].encode()))


@pytest.mark.parametrize(
    ("known", "unknown"),
    [
        pytest.param("2a8648ce3d040302", "2a8648ce3d04037f", id="signature"),
        pytest.param("2a8648ce3d0201", "2a8648ce3d027f", id="key"),
    ],
)
def test_request_with_an_unknown_algorithm_cannot_be_signed(known: str, unknown: str):
    encoded = request().public_bytes(Encoding.DER).replace(bytes.fromhex(known), bytes.fromhex(unknown))
    with pytest.raises(ValueError, match="unable to verify certificate request signature"):
        signed(x509.load_der_x509_csr(encoded), CLIENT)
