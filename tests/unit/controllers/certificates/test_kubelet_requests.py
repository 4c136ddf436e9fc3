"""Recognition of the requests of kubelets for client certificates."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from cryptography import x509

from kubeloop.controllers.certificates.kubelet_requests import required_permissions
from support.objects.certificate_requests import KUBELET, USAGES, signing_request


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
