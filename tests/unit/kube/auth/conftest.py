"""Kubeconfig files and exec plugins; no kubeconfig or proxy from the environment."""

from __future__ import annotations

import stat
import sys

import pytest

from kubeloop.kube import yaml as yaml_text
from kubeloop.kube.client.aiohttp_transport import AiohttpTransport


@pytest.fixture(autouse=True)
def no_environment(monkeypatch, tmp_path):
    for name in (
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "NO_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture(params=["asyncio", "aiohttp"])
def http(request, monkeypatch):
    """Run the test with both HTTP clients."""
    if request.param == "aiohttp":
        monkeypatch.setattr("kubeloop.kube.client.asyncio_transport.AsyncioTransport", AiohttpTransport)


@pytest.fixture
def kubeconfig(tmp_path):
    """kubeconfig(server, user): path of a file with one context, "dev"."""

    def write(server: str, user: dict, **cluster) -> str:
        path = tmp_path / "config"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "dev",
            "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(yaml_text.write(content))
        return str(path)

    return write


@pytest.fixture
def plugin(tmp_path):
    """plugin(*tokens): user section with an exec plugin that returns one token after the other."""

    def write(*tokens: str, expires: str = "") -> dict:
        state = tmp_path / "calls"
        state.write_text("0")
        status = {"expirationTimestamp": expires} if expires else {}
        script = tmp_path / "plugin"
        script.write_text(
            f"#!{sys.executable}\n"
            "import json, pathlib\n"
            f"state = pathlib.Path({str(state)!r})\n"
            "calls = int(state.read_text())\n"
            "state.write_text(str(calls + 1))\n"
            f"tokens = {list(tokens)!r}\n"
            f"status = {{'token': tokens[min(calls, len(tokens) - 1)], **{status!r}}}\n"
            "print(json.dumps({'kind': 'ExecCredential', 'apiVersion': 'client.authentication.k8s.io/v1',"
            " 'status': status}))\n"
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return {"exec": {"command": str(script), "apiVersion": "client.authentication.k8s.io/v1"}}

    return write
