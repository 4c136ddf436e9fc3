"""Users that front proxies name in headers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.authentication.client_certificates import InvalidCertificate
from kubeloop.devcluster.authentication.front_proxy import FrontProxy, FrontProxySettings
from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from support.objects.client_certificates import client_certificate
from support.simulation.set_clock import SetClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AUTHORITY = CertificateAuthority.create(NOW)


def front_proxy(**settings: Any) -> FrontProxy:
    return FrontProxy(FrontProxySettings(AUTHORITY.certificate_pem, **settings), SetClock(NOW))


def request(headers: dict[str, str], *, name: str = "front-proxy-client") -> ApiRequest:
    certificate = client_certificate(AUTHORITY, name, begin=NOW)
    return ApiRequest("GET", "/", headers=headers, certificates=(certificate.der,))


def test_headers_name_the_user_and_are_removed():
    headers = {
        "x-remote-user": "alice",
        "x-remote-uid": "u",
        "x-remote-group": "dev, ops",
        "x-remote-extra-acme.com%2fproject": "p, q",
        "accept": "*/*",
    }
    proxied = request(headers)
    assert front_proxy().user(proxied) == {
        "username": "alice",
        "uid": "u",
        "groups": ["dev", "ops"],
        "extra": {"acme.com/project": ["p", "q"]},
    }
    assert proxied.headers == {"accept": "*/*"}


def test_request_without_a_user_is_not_that_of_a_proxy():
    assert front_proxy().user(request({"x-remote-group": "dev"})) is None
    assert front_proxy().user(ApiRequest("GET", "/", headers={"x-remote-user": "alice"})) is None


def test_only_allowed_names_are_proxies():
    headers = {"x-remote-user": "alice"}
    with pytest.raises(InvalidCertificate, match="not in the allowed list"):
        front_proxy().user(request(headers, name="bob"))
    assert front_proxy(allowed_names=()).user(request(headers, name="bob")) is not None
    other = client_certificate(CertificateAuthority.create(NOW), "front-proxy-client", begin=NOW)
    with pytest.raises(InvalidCertificate):
        front_proxy().user(ApiRequest("GET", "/", headers=headers, certificates=(other.der,)))


def test_other_headers_can_be_configured():
    proxy = front_proxy(username_headers=("X-User", "X-Login"), group_headers=(), extra_prefixes=())
    assert proxy.user(request({"x-login": "alice", "x-remote-group": "dev"})) == {"username": "alice", "groups": []}


def test_extension_servers_get_the_authority_and_the_headers():
    data = front_proxy(uid_headers=()).config_map_data()
    assert data.pop("requestheader-client-ca-file") == AUTHORITY.certificate_pem
    assert {name: json.loads(text) for name, text in data.items()} == {
        "requestheader-allowed-names": ["front-proxy-client"],
        "requestheader-extra-headers-prefix": ["X-Remote-Extra-"],
        "requestheader-group-headers": ["X-Remote-Group"],
        "requestheader-username-headers": ["X-Remote-User"],
    }


def test_server_has_an_authority_of_its_own_by_default():
    proxy = FrontProxy(FrontProxySettings(), SetClock(NOW))
    assert proxy.ca_pem == proxy.ca_pem != AUTHORITY.certificate_pem
