"""Credentials of `exec` plugins and of `auth-provider`, with renewal.

kubernetes_asyncio runs them. It is imported in this module only, because the import takes a quarter of a second.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from kubernetes_asyncio import client
from kubernetes_asyncio.config import kube_config

from kubeloop.kube.auth.authorization_header import AuthorizedTransport, ReloadedAuthorization
from kubeloop.kube.client.endpoint import Endpoint
from kubeloop.kube.client.transport import Transport
from kubeloop.kube.user_error import UserError

_RELOAD_SECONDS = 60.0


async def connect_with_library(
    files: Sequence[str], context: str, transport_for: Callable[[Any], tuple[Any, Endpoint]]
) -> Transport:
    """Return the transport that `transport_for` creates for the library's Configuration, with renewed credentials.

    Raises UserError if the plugin or the provider fails.
    """
    # The library logs errors that it also raises.
    logging.getLogger("kubernetes_asyncio.config.kube_config").setLevel(logging.CRITICAL)
    paths = os.pathsep.join(files)
    configuration = client.Configuration()
    try:
        merger = kube_config.KubeConfigMerger("")
        for file in files:  # not as one argument, which the library splits at colons
            merger.load_config(file)
        loader: Any = kube_config.KubeConfigLoader(merger.config, active_context=context, config_base_path=None)
        await loader.load_and_set(configuration)
    except Exception as error:  # the library raises many types
        raise _user_error(paths, error) from error
    transport, endpoint = transport_for(configuration)
    certificate = configuration.cert_file

    async def load(rejected: bool) -> str:
        nonlocal certificate
        if rejected and hasattr(loader, "exec_plugin_expiry"):
            del loader.exec_plugin_expiry  # the server rejects the credentials before they expire
        try:
            await loader.load_and_set(configuration)
        except Exception as error:
            raise _user_error(paths, error) from error
        if configuration.cert_file and configuration.cert_file != certificate and endpoint.tls is not None:
            certificate = configuration.cert_file
            endpoint.tls.load_cert_chain(configuration.cert_file, configuration.key_file)
            transport.close_idle_connections()
        return str(configuration.api_key.get("BearerToken", ""))

    # A plugin without an expiry is only run again after the server rejected its credentials.
    expires = "exec" not in loader._user.value or hasattr(loader, "exec_plugin_expiry")
    value = str(configuration.api_key.get("BearerToken", ""))
    authorization = ReloadedAuthorization(value, load, every_seconds=_RELOAD_SECONDS if expires else None)
    return AuthorizedTransport(transport, authorization)


def _user_error(paths: str, error: Exception) -> UserError:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, FileNotFoundError) and "/" not in str(error.filename or ""):
        plugin = f"exec plugin {error.filename!r}" if error.filename else "its exec plugin"  # uvloop omits the name
        return UserError(f"kubeconfig {paths}: {plugin} not found", hint="install it, or put it on the PATH")
    if isinstance(error, AssertionError | TypeError):  # raised by the library for missing fields
        return UserError(f"kubeconfig {paths} is incomplete", hint="see users[] in it")
    if "exec:" in text:
        return UserError(f"kubeconfig {paths}: {text}", hint="run the exec plugin by hand to see its output")
    return UserError(f"kubeconfig {paths}: {text}", hint="try it with: kubectl version")
