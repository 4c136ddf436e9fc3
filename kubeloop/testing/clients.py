"""Clients of Kubernetes libraries for tests; a library is imported when a client of it is created."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kubeloop.kube.user_error import UserError

if TYPE_CHECKING:
    import kr8s
    import kr8s.asyncio
    import kubernetes_asyncio.client


def kubernetes_client(kubeconfig: str) -> Any:
    """Return a `kubernetes.client.ApiClient`."""
    _library("kubernetes")
    return importlib.import_module("kubernetes.config").new_client_from_config(config_file=kubeconfig)


def kubernetes_asyncio_client(server: str, token: str) -> kubernetes_asyncio.client.ApiClient:
    """Return an ApiClient; create it on the event loop that uses it, as `async with`. `server` has no TLS: aiohttp
    (3.14) does not wait until an interrupted encrypted watch is closed, and the garbage collector then emits a
    ResourceWarning in another test."""
    library = _library("kubernetes_asyncio")
    configuration = library.client.Configuration(host=server)
    configuration.api_key["BearerToken"] = f"Bearer {token}"
    client: kubernetes_asyncio.client.ApiClient = library.client.ApiClient(configuration)
    return client


def kr8s_client(kubeconfig: str, namespace: str) -> kr8s.Api:
    client: kr8s.Api = _library("kr8s").api(kubeconfig=kubeconfig, namespace=namespace)
    return client


def close_kr8s(client: kr8s.Api) -> None:
    """Close its connections, which kr8s (0.20) itself never closes: they would stay open until garbage collection,
    which emits a ResourceWarning in another test. The client opens new ones if it is used again."""
    session = getattr(client, "_session", None)
    portal = getattr(importlib.import_module("kr8s._async_utils"), "Portal", None)
    if session is not None and portal is not None:
        portal().call(session.aclose)


async def kr8s_asyncio_client(kubeconfig: str, namespace: str) -> kr8s.asyncio.Api:
    _library("kr8s")
    library = importlib.import_module("kr8s.asyncio")
    client: kr8s.asyncio.Api = await library.api(kubeconfig=kubeconfig, namespace=namespace)
    return client


def lightkube_client(kubeconfig: str, namespace: str, *, asynchronous: bool) -> Any:
    """Return a `lightkube.Client` or `lightkube.AsyncClient`."""
    library = _library("lightkube")
    config = library.KubeConfig.from_file(kubeconfig)
    return (library.AsyncClient if asynchronous else library.Client)(config=config, namespace=namespace)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        package = name.replace("_", "-")
        error = UserError(f"the library {name} is not installed", hint=f"pip install {package}")
        error.add_note(f"hint: pip install {package}")
        raise error from None
