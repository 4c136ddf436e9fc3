"""Credentials that a program or an identity provider gives and renews: `exec` plugins, and `auth-provider`.

kubernetes_asyncio runs and asks them. It is imported here alone, because that takes a quarter of a second.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from kubernetes_asyncio import client, config

from kubeloop.kube.auth.authorization_header import AuthorizedTransport, ReloadedAuthorization
from kubeloop.kube.client.endpoint import Endpoint
from kubeloop.kube.client.transport import Transport
from kubeloop.kube.errors import UserError

_RELOAD_SECONDS = 60.0


async def connect_renewed(
    files: Sequence[str], context: str, transport_for: Callable[[Any], tuple[Any, Endpoint]]
) -> Transport:
    """The transport that `transport_for` makes of the library's Configuration, with credentials that are renewed.

    Raises UserError for what the plugin or the provider has against it.
    """
    # It logs what it also raises.
    logging.getLogger("kubernetes_asyncio.config.kube_config").setLevel(logging.CRITICAL)
    paths = os.pathsep.join(files)
    configuration = client.Configuration()
    try:
        loader: Any = await config.load_kube_config(
            config_file=paths, context=context, client_configuration=configuration, persist_config=False
        )
    except Exception as error:  # whatever it stumbles over: its exceptions are of many types
        raise _told(paths, error) from error
    transport, endpoint = transport_for(configuration)
    certificate = configuration.cert_file

    async def load(rejected: bool) -> str:
        nonlocal certificate
        if rejected and hasattr(loader, "exec_plugin_expiry"):
            del loader.exec_plugin_expiry  # whatever it says: the server does not take it
        try:
            await loader.load_and_set(configuration)
        except Exception as error:
            raise _told(paths, error) from error
        if configuration.cert_file and configuration.cert_file != certificate and endpoint.tls is not None:
            certificate = configuration.cert_file
            endpoint.tls.load_cert_chain(configuration.cert_file, configuration.key_file)
            transport.close_idle_connections()
        return str(configuration.api_key.get("BearerToken", ""))

    # An exec plugin that sets no expiry is only run again after a refusal.
    expires = "exec" not in loader._user.value or hasattr(loader, "exec_plugin_expiry")
    value = str(configuration.api_key.get("BearerToken", ""))
    authorization = ReloadedAuthorization(value, load, every_seconds=_RELOAD_SECONDS if expires else None)
    return AuthorizedTransport(transport, authorization)


def _told(paths: str, error: Exception) -> UserError:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, FileNotFoundError) and "/" not in str(error.filename or ""):
        plugin = f"exec plugin {error.filename!r}" if error.filename else "its exec plugin"  # uvloop does not say
        return UserError(f"kubeconfig {paths}: {plugin} is not there", hint="install it, or put it on the PATH")
    if isinstance(error, AssertionError | TypeError):  # its way to stumble over what is not there
        return UserError(f"kubeconfig {paths} is incomplete", hint="see users[] in it")
    if "exec:" in text:
        return UserError(f"kubeconfig {paths}: {text}", hint="run the exec plugin by hand to see what it says")
    return UserError(f"kubeconfig {paths}: {text}", hint="try it with: kubectl version")
