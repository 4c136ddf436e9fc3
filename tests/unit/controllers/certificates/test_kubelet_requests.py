"""Recognition of the requests of kubelets for client certificates."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from cryptography import x509

from kubeloop.controllers.certificates.kubelet_requests import required_permissions
from support.objects.certificate_requests import KUBELET, USAGES, signing_request, with_duplicate_extension


def permissions(username: str = "bootstrap", **changes: Any) -> list[str]:
    request = signing_request(**changes)
    request["spec"]["username"] = username
    return [permission.subresource for permission in required_permissions(request)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, ["nodeclient"], id="bootstrapping kubelet"),
        pytest.param({"username": KUBELET}, ["selfnodeclient", "nodeclient"], id="renewal"),
        pytest.param({"usages": (*USAGES, "key encipherment")}, ["nodeclient"], id="RSA key"),
        pytest.param({"usages": (*USAGES, "server auth")}, [], id="other usage"),
        pytest.param({"usages": ("client auth",)}, [], id="missing usage"),
        pytest.param({"signer": "kubernetes.io/kube-apiserver-client"}, [], id="other signer"),
        pytest.param({"organizations": ()}, [], id="no organization"),
        pytest.param({"organizations": ("system:nodes", "system:masters")}, [], id="second organization"),
        pytest.param({"common_name": "admin"}, [], id="other name"),
        pytest.param({"names": [x509.DNSName("a")]}, [], id="DNS name"),
        pytest.param({"names": [x509.IPAddress(ip_address("10.0.0.1"))]}, [], id="address"),
        pytest.param({"names": [x509.RFC822Name("a@example.com")]}, [], id="e-mail"),
        pytest.param({"names": [x509.UniformResourceIdentifier("spiffe://a")]}, [], id="URI"),
    ],
)
def test_permissions_that_approve_a_request(changes: Any, expected: list[str]):
    assert permissions(**changes) == expected


def test_unreadable_request_is_an_error():
    request = signing_request()
    request["spec"]["request"] = "bm8="
    with pytest.raises(ValueError, match="PEM"):
        required_permissions(request)


def _with_alternative_names(encoded: bytes) -> dict[str, Any]:
    return signing_request(extensions=[x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), encoded)])


@pytest.mark.parametrize(
    ("request_object", "message"),
    [
        pytest.param(with_duplicate_extension(), "Duplicate 1.2.3.4", id="duplicate extension"),
        pytest.param(_with_alternative_names(b"\x01\x02"), "parsing asn1", id="malformed names"),
        pytest.param(_with_alternative_names(b"\x30\x02\xa3\x00"), "x400Address", id="unsupported kind of name"),
    ],
)
def test_unreadable_extension_is_an_error(request_object: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        required_permissions(request_object)
