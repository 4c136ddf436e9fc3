"""Clients of Kubernetes libraries."""

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.testing import clients


async def test_kubernetes_asyncio_client_has_server_and_token():
    async with clients.kubernetes_asyncio_client("http://127.0.0.1:1", "secret") as client:
        assert client.configuration.host == "http://127.0.0.1:1"
        assert client.configuration.api_key["BearerToken"] == "Bearer secret"


def test_missing_library_names_the_package_to_install(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(clients.importlib, "import_module", missing)
    with pytest.raises(UserError, match="the library kr8s is not installed") as raised:
        clients.kr8s_client("kubeconfig.yaml", "default")
    assert raised.value.hint == "pip install kr8s"
