"""Credentials of exec plugins."""

from __future__ import annotations

import pytest

from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.errors import UserError
from support.kubeconfig_server import fetch_version, require_token


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
