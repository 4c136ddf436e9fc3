"""The way to an API server: kubeconfig, in-cluster service account, exec plugin, token, client certificate.

kubernetes_asyncio reads all of these, and renews them; it is imported when `connect` is called, because that takes half
a second. `connect_token` is for who already has address and token (the development cluster).
"""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import Any, Literal

from kubeloop.kube.authorization import AuthorizedTransport, ReloadedAuthorization, StaticAuthorization
from kubeloop.kube.endpoint import Endpoint, endpoint_at
from kubeloop.kube.errors import UserError
from kubeloop.kube.transport import Transport

HttpClient = Literal["asyncio", "aiohttp"]

_RELOAD_SECONDS = 60.0
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"


async def connect(
    kubeconfig: str | None = None, context: str | None = None, *, http: HttpClient = "asyncio"
) -> Transport:
    """A Transport to the API server of a kubeconfig (default: $KUBECONFIG, else ~/.kube/config), or, where there is no
    kubeconfig, of the cluster we run in. To be called inside a running loop.

    Nothing is sent to the server yet. `http` chooses the HTTP client; with a proxy it is always aiohttp. Raises
    UserError if the configuration cannot be used.
    """
    paths = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    found = _files(paths)
    if not found:
        if not kubeconfig and os.environ.get(_IN_CLUSTER):
            return await _connect_in_cluster(http)
        hint = "give --kubeconfig FILE, or set KUBECONFIG"
        raise UserError(f"no kubeconfig at {paths}", hint=hint)
    _check_readable(found, context)
    return await _connect_kubeconfig(os.pathsep.join(found), context, http)


def connect_token(server_url: str, token: str, ca: bytes | None = None, *, http: HttpClient = "asyncio") -> Transport:
    """A Transport to a server with a bearer token. `ca`: PEM of the authority its certificate must be from (None: the
    system's). To be called inside a running loop. Raises UserError."""
    tls = _tls(ca.decode() if ca else None, "", verify=True) if server_url.startswith("https") else None
    return AuthorizedTransport(_transport(endpoint_at(server_url, tls), http), StaticAuthorization(f"Bearer {token}"))


# --- kubeconfig ------------------------------------------------------------------------------------------------------


def _files(paths: str) -> list[str]:
    """Those of the files in a KUBECONFIG that exist."""
    expanded = [os.path.expanduser(path) for path in paths.split(os.pathsep)]
    return [path for path in expanded if path and os.path.isfile(path)]


def _check_readable(paths: list[str], context: str | None) -> None:
    """Say in one line what is wrong with the files. Raises UserError."""
    import yaml

    contexts: list[str] = []
    current = ""
    for path in paths:
        try:
            content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read kubeconfig {path}: {error}", hint="check the file's permissions") from error
        except yaml.YAMLError as error:
            where = getattr(error, "problem_mark", None)
            line = f" (line {where.line + 1})" if where else ""
            problem = getattr(error, "problem", None) or "not YAML"
            raise UserError(f"kubeconfig {path} is not valid YAML{line}: {problem}", hint="check the file") from error
        if not isinstance(content, dict) or not isinstance(content.get("clusters") or [], list):
            raise UserError(f"{path} is not a kubeconfig", hint="it has clusters, contexts and users")
        contexts += [
            each["name"] for each in content.get("contexts") or [] if isinstance(each, dict) and "name" in each
        ]
        current = current or content.get("current-context") or ""
    wanted = context or current
    choices = f"contexts there: {', '.join(contexts)}" if contexts else "it has no contexts"
    if not wanted:
        raise UserError(f"kubeconfig {paths[0]} has no current-context", hint=choices)
    if wanted not in contexts:
        raise UserError(f"no context {wanted!r} in kubeconfig {' or '.join(paths)}", hint=choices)


async def _connect_kubeconfig(paths: str, context: str | None, http: HttpClient) -> Transport:
    from kubernetes_asyncio import client, config

    # It logs what it also raises.
    logging.getLogger("kubernetes_asyncio.config.kube_config").setLevel(logging.CRITICAL)
    configuration = client.Configuration()
    try:
        loader: Any = await config.load_kube_config(
            config_file=paths, context=context, client_configuration=configuration, persist_config=False
        )
    except Exception as error:  # whatever it stumbles over: its exceptions are of many types
        raise _kubeconfig_error(paths, error) from error
    if loader._cluster is None or "server" not in loader._cluster:
        raise UserError(f"kubeconfig {paths} names no server for its cluster", hint="set clusters[].cluster.server")
    endpoint = _endpoint(configuration, paths)
    transport = _transport(endpoint, http)
    value = configuration.api_key.get("BearerToken", "")
    certificate = configuration.cert_file

    async def load(rejected: bool) -> str:
        nonlocal certificate
        if rejected and hasattr(loader, "exec_plugin_expiry"):
            del loader.exec_plugin_expiry  # whatever it says: the server does not take it
        try:
            await loader.load_and_set(configuration)
        except Exception as error:
            raise _kubeconfig_error(paths, error) from error
        if configuration.cert_file and configuration.cert_file != certificate and endpoint.tls is not None:
            certificate = configuration.cert_file
            endpoint.tls.load_cert_chain(configuration.cert_file, configuration.key_file)
            transport.forget_idle()
        return str(configuration.api_key.get("BearerToken", ""))

    user = loader._user.value if loader._user is not None else {}
    if not ({"exec", "auth-provider", "tokenFile"} & set(user)):
        return AuthorizedTransport(transport, StaticAuthorization(value)) if value else transport
    # An exec plugin that sets no expiry is only run again after a refusal.
    expires = "exec" not in user or hasattr(loader, "exec_plugin_expiry")
    every_seconds = _RELOAD_SECONDS if expires else None
    authorization = ReloadedAuthorization(value, load, every_seconds=every_seconds)
    return AuthorizedTransport(transport, authorization)


def _kubeconfig_error(paths: str, error: Exception) -> UserError:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, FileNotFoundError) and "/" not in str(error.filename or ""):
        plugin = f"exec plugin {error.filename!r}" if error.filename else "its exec plugin"  # uvloop does not say
        return UserError(f"kubeconfig {paths}: {plugin} is not there", hint="install it, or put it on the PATH")
    if isinstance(error, AssertionError | TypeError):  # its way to stumble over what is not there
        return UserError(
            f"kubeconfig {paths} is incomplete", hint="its context needs a cluster with a server, and a user (maybe {})"
        )
    if "exec:" in text:
        return UserError(f"kubeconfig {paths}: {text}", hint="run the exec plugin by hand to see what it says")
    return UserError(f"kubeconfig {paths}: {text}", hint="try it with: kubectl version")


# --- in a cluster ----------------------------------------------------------------------------------------------------


async def _connect_in_cluster(http: HttpClient) -> Transport:
    from kubernetes_asyncio import client, config

    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as error:
        hint = "the pod needs a service account token (automountServiceAccountToken)"
        raise UserError(f"in-cluster configuration: {error}", hint=hint) from error

    async def load(_rejected: bool) -> str:
        try:
            return str(await configuration.get_api_key_with_prefix("BearerToken")).strip()
        except (config.ConfigException, OSError) as error:
            raise UserError(f"in-cluster configuration: {error}", hint="is the token still mounted?") from error

    endpoint = _endpoint(configuration, "in-cluster configuration")
    authorization = ReloadedAuthorization(await load(False), load, every_seconds=_RELOAD_SECONDS)
    return AuthorizedTransport(_transport(endpoint, http), authorization)


# --- connections -----------------------------------------------------------------------------------------------------


def _endpoint(configuration: Any, source: str) -> Endpoint:
    tls = None
    if not configuration.host.startswith("http://"):
        try:
            ca = Path(configuration.ssl_ca_cert).read_text(encoding="ascii") if configuration.ssl_ca_cert else None
            tls = _tls(ca, source, verify=bool(configuration.verify_ssl))
            if configuration.cert_file:
                tls.load_cert_chain(configuration.cert_file, configuration.key_file)
        except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
            raise UserError(f"{source}: bad certificate: {error}", hint="check its certificates and keys") from error
    endpoint = endpoint_at(configuration.host, tls, tls_name=configuration.tls_server_name or "")
    proxy = configuration.proxy or _proxy_from_environment(endpoint)
    return endpoint_at(configuration.host, tls, tls_name=endpoint.tls_name, proxy=proxy)


def _tls(ca_pem: str | None, source: str, *, verify: bool) -> ssl.SSLContext:
    try:
        tls = ssl.create_default_context(cadata=ca_pem)
    except ssl.SSLError as error:
        raise UserError(f"{source}: bad certificate authority: {error}", hint="it must be PEM") from error
    # kubeadm and others issue certificates without extensions that newer Pythons insist on; Kubernetes does not.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _proxy_from_environment(endpoint: Endpoint) -> str:
    """HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY or loopback says otherwise, as in client-go."""
    import urllib.request

    if endpoint.host in {"localhost", "127.0.0.1", "::1"} or urllib.request.proxy_bypass(endpoint.host):
        return ""
    return urllib.request.getproxies().get("https" if endpoint.tls else "http", "")


def _transport(endpoint: Endpoint, http: HttpClient) -> Any:
    if endpoint.proxy or http == "aiohttp":
        from kubeloop.kube.aiohttp_transport import AiohttpTransport

        return AiohttpTransport(endpoint)
    from kubeloop.kube.asyncio_transport import AsyncioTransport

    return AsyncioTransport(endpoint)
