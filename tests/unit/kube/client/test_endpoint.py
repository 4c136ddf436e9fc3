"""Address of an API server."""

from __future__ import annotations

import json

import pytest

from kubeloop.kube.client.endpoint import endpoint_from_url
from kubeloop.kube.user_error import UserError


@pytest.mark.parametrize("url", ["ftp://x", "https://", "https://x:99999", "http://x:0", "https://[x"])
def test_invalid_url_is_user_error(url):
    with pytest.raises(UserError, match="is not a server address"):
        endpoint_from_url(url)


def test_endpoint_from_url():
    endpoint = endpoint_from_url("https://[::1]:6443/prefix/")
    assert (endpoint.host, endpoint.port, endpoint.path_prefix) == ("::1", 6443, "/prefix")
    assert endpoint.url == "https://[::1]:6443/prefix"
    assert endpoint_from_url("http://localhost").url == "http://localhost"
    assert endpoint_from_url("example.com").url == "https://example.com"
    assert json.dumps(endpoint_from_url("http://localhost:8080").port) == "8080"
