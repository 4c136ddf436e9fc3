"""Credentials of exec plugins."""

from __future__ import annotations

import pytest

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.auth.exec_plugin import connect_with_library
from kubeloop.kube.client.endpoint import endpoint_from_url
from kubeloop.kube.client.transport import HttpRequest, HttpResponse
from kubeloop.kube.user_error import UserError
from support.apiserver.kubeconfig_server import fetch_version, require_token


@pytest.mark.parametrize("expires", ["", "2999-01-01T00:00:00Z"])
async def test_exec_plugin_is_rerun_after_401(serving, kubeconfig, plugin, expires):
    async with serving(require_token) as server:
        transport = await connect(kubeconfig(server.url, plugin("old", "right", expires=expires)))
        assert (await fetch_version(transport)).status == 200
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer old", "Bearer right"]


async def test_missing_or_failing_exec_plugin_is_user_error(kubeconfig, tmp_path, caplog):
    version = "client.authentication.k8s.io/v1"
    path = kubeconfig("http://127.0.0.1:1", {"exec": {"command": "no-such-plugin", "apiVersion": version}})
    with pytest.raises(UserError, match="exec plugin 'no-such-plugin' not found") as raised:
        await connect(path)
    assert "install" in raised.value.hint
    path = kubeconfig("http://127.0.0.1:1", {"exec": {"command": "false", "apiVersion": version}})
    with pytest.raises(UserError, match="exec: process returned 1"):
        await connect(path)
    assert caplog.text == ""


class RecordingTransport:
    """Transport that records the headers of requests."""

    def __init__(self):
        self.headers = []

    async def send(self, request):
        self.headers.append(request.headers)
        return HttpResponse(200, b"{}")


async def test_library_configuration_has_server_and_token(kubeconfig, plugin):
    transport, hosts = RecordingTransport(), []

    def transport_for(configuration):
        hosts.append(configuration.host)
        return transport, endpoint_from_url(configuration.host)

    path = kubeconfig("http://127.0.0.1:1234", plugin("first", "second"))
    authorized = await connect_with_library([path], "dev", transport_for)
    for _ in range(2):
        await authorized.send(HttpRequest("GET", "/version", headers={}))
    assert hosts == ["http://127.0.0.1:1234"]
    assert [headers["authorization"] for headers in transport.headers] == ["Bearer first"] * 2


@pytest.mark.parametrize(
    ("user", "message", "hint"),
    [
        pytest.param(
            {"exec": {"command": "true"}},
            "missing key 'apiVersion'",
            "run the exec plugin by hand to see its output",
            id="no API version",
        ),
        pytest.param(
            {"exec": {"command": "true", "apiVersion": "client.authentication.k8s.io/v1"}},
            "config: exec: ",
            "run the exec plugin by hand to see its output",
            id="no output",
        ),
    ],
)
async def test_failures_of_the_library_are_user_errors(kubeconfig, user, message, hint):
    with pytest.raises(UserError, match=message) as raised:
        await connect_with_library([kubeconfig("http://127.0.0.1:1", user)], "dev", lambda _: None)
    assert raised.value.hint == hint
