"""Connections to an API server, with credentials from a kubeconfig, service account, exec plugin, token or certificate.

`connect` reads the configuration; `connect_with_token` takes address and token (development cluster).
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kubeloop.kube.auth import kubeconfig as kubeconfig_reader
from kubeloop.kube.auth.authorization_header import (
    Authorization,
    AuthorizedTransport,
    ReloadedAuthorization,
    StaticAuthorization,
)
from kubeloop.kube.auth.impersonation import Headers, impersonation_headers
from kubeloop.kube.auth.kubeconfig import KubeconfigEntry, read_kubeconfig
from kubeloop.kube.client.endpoint import Endpoint, endpoint_from_url
from kubeloop.kube.client.tls_verification import client_context
from kubeloop.kube.client.transport import Transport
from kubeloop.kube.user_error import UserError

_RELOAD_SECONDS = 60.0
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_INSECURE = "insecure-skip-tls-verify"
_LIBRARY_CREDENTIALS = {"exec", "auth-provider"}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder of the mounted service account files in a pod."""


async def connect(kubeconfig: str | Sequence[str] | None = None, context: str | None = None) -> Transport:
    """Connect to the API server of a kubeconfig, one path or several that are merged (default: $KUBECONFIG, a list of
    paths, else ~/.kube/config); without one, to the API server of the cluster this process runs in. Call it inside a
    running loop.

    Nothing is sent to the server yet. Raises UserError if the configuration cannot be used.
    """
    paths = _kubeconfig_paths(kubeconfig)
    existing = _existing_files(paths)
    if not existing:
        if not kubeconfig and os.environ.get(_IN_CLUSTER):
            return _connect_in_cluster()
        hint = "give --kubeconfig FILE, or set KUBECONFIG"
        raise UserError(f"no kubeconfig at {os.pathsep.join(paths)}", hint=hint)
    return await _connect_kubeconfig(existing, context)


def certificate_authority(kubeconfig: str | Sequence[str] | None = None, context: str | None = None) -> str:
    """Return the certificates that verify the API server of connect(), in PEM; "" if there are none.

    Raises UserError.
    """
    existing = _existing_files(_kubeconfig_paths(kubeconfig))
    if existing:
        return read_kubeconfig(existing, context).cluster.content("certificate-authority").decode("latin-1")
    path = SERVICE_ACCOUNT / "ca.crt"
    return path.read_text() if path.exists() else ""


def context_names(kubeconfig: Sequence[str] = ()) -> list[str]:
    """Return the contexts of the kubeconfig of connect(), none without one. Raises UserError."""
    return kubeconfig_reader.context_names(_existing_files(_kubeconfig_paths(kubeconfig)))


def runs_plugin(kubeconfig: Sequence[str] = (), context: str | None = None) -> bool:
    """Return True if connect() runs a program for the credentials. Raises UserError."""
    existing = _existing_files(_kubeconfig_paths(kubeconfig))
    return bool(existing and read_kubeconfig(existing, context).user.values.keys() & _LIBRARY_CREDENTIALS)


def connect_with_token(server_url: str, token: str) -> Transport:
    """Return a Transport to a server with a bearer token. Call it inside a running loop. Raises UserError."""
    return AuthorizedTransport(_transport(endpoint_from_url(server_url)), StaticAuthorization(f"Bearer {token}"))


# --- kubeconfig ------------------------------------------------------------------------------------------------------


def _kubeconfig_paths(kubeconfig: str | Sequence[str] | None) -> Sequence[str]:
    if kubeconfig:
        return [kubeconfig] if isinstance(kubeconfig, str) else kubeconfig
    return paths_in_environment() or [str(Path.home() / ".kube" / "config")]


def paths_in_environment() -> list[str]:
    """Return the paths in $KUBECONFIG, a list as $PATH is one."""
    return [os.path.expanduser(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]


def _existing_files(paths: Sequence[str]) -> list[str]:
    expanded = map(os.path.expanduser, paths)
    return [path for path in expanded if os.path.isfile(path)]


async def _connect_kubeconfig(paths: list[str], context: str | None) -> Transport:
    config = read_kubeconfig(paths, context)
    cluster, user = config.cluster, config.user
    server = cluster.text("server")
    if not server:
        raise UserError(
            f"kubeconfig {cluster.file} names no server for its cluster", hint="set clusters[].cluster.server"
        )
    impersonation = impersonation_headers(user)
    if user.values.keys() & _LIBRARY_CREDENTIALS:
        from kubeloop.kube.auth.exec_plugin import connect_with_library

        return await connect_with_library(
            paths, config.context, lambda configuration: _library_transport(configuration, impersonation)
        )
    tls = None
    if not server.startswith("http://"):
        source = f"kubeconfig {cluster.file}"
        ca = cluster.content("certificate-authority")
        tls = _tls(ca.decode("latin-1") if ca else None, source, verify=not cluster.values.get(_INSECURE))
        certificate, key = user.content("client-certificate"), user.content("client-key")
        if certificate:
            load_certificate(tls, certificate, key, f"kubeconfig {user.file}")
    endpoint = _endpoint(
        server,
        tls,
        tls_name=cluster.text("tls-server-name"),
        proxy=cluster.text("proxy-url"),
        impersonation=impersonation,
    )
    transport = _transport(endpoint)
    authorization = _authorization(user)
    return AuthorizedTransport(transport, authorization) if authorization is not None else transport


def _authorization(user: KubeconfigEntry) -> Authorization | None:
    """Return the Authorization from a token file, a token, or name and password. Raises UserError."""
    path = user.text("tokenFile")
    if path:

        async def load(_rejected: bool) -> str:
            return _bearer(user.read(path, "tokenFile"))

        return ReloadedAuthorization(_bearer(user.read(path, "tokenFile")), load, every_seconds=_RELOAD_SECONDS)
    token = user.text("token")
    if token:
        return StaticAuthorization(f"Bearer {token}")
    if "username" in user.values and "password" in user.values:
        both = f"{user.values['username']}:{user.values['password']}"
        return StaticAuthorization(f"Basic {base64.b64encode(both.encode()).decode()}")
    return None


def _bearer(content: bytes) -> str:
    return f"Bearer {content.decode('latin-1').strip()}"


def load_certificate(tls: ssl.SSLContext, certificate: bytes, key: bytes, source: str) -> None:
    """Load a client certificate. Raises UserError."""
    import tempfile

    with tempfile.NamedTemporaryFile() as file:  # OpenSSL reads files only; mode 0600, deleted at the end
        file.write(certificate + b"\n" + key)
        file.flush()
        try:
            tls.load_cert_chain(file.name)
        except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
            raise UserError(
                f"{source}: bad client certificate: {error}", hint="check its certificates and keys"
            ) from error


# --- in-cluster ------------------------------------------------------------------------------------------------------


def _connect_in_cluster() -> Transport:
    """Connect with the pod's service account. Source: client-go rest.InClusterConfig."""
    host, port = os.environ.get(_IN_CLUSTER, ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not port:
        raise UserError(
            "in-cluster configuration: KUBERNETES_SERVICE_PORT is not set", hint="or give --kubeconfig FILE"
        )
    ca = _read_service_account_file("ca.crt").decode("latin-1")

    async def load(_rejected: bool) -> str:
        return _bearer(_read_service_account_file("token"))

    tls = _tls(ca, "in-cluster configuration", verify=True)
    endpoint = _endpoint(f"https://{f'[{host}]' if ':' in host else host}:{port}", tls)
    authorization = ReloadedAuthorization(
        _bearer(_read_service_account_file("token")), load, every_seconds=_RELOAD_SECONDS
    )
    return AuthorizedTransport(_transport(endpoint), authorization)


def _read_service_account_file(name: str) -> bytes:
    """Read a file of the pod's service account. Raises UserError."""
    path = SERVICE_ACCOUNT / name
    try:
        content = path.read_bytes()
    except OSError as error:
        problem = error.strerror
    else:
        if content.strip():
            return content
        problem = "it is empty"
    raise UserError(
        f"in-cluster configuration: {path}: {problem}",
        hint="the pod needs a service account token (automountServiceAccountToken)",
    )


# --- connections -----------------------------------------------------------------------------------------------------


def _library_transport(configuration: Any, impersonation: Headers) -> tuple[Any, Endpoint]:
    """Return the transport and endpoint for a kubernetes_asyncio Configuration. Raises UserError."""
    tls = None
    if not configuration.host.startswith("http://"):
        source = "kubeconfig"
        try:
            ca = Path(configuration.ssl_ca_cert).read_text(encoding="ascii") if configuration.ssl_ca_cert else None
            tls = _tls(ca, source, verify=bool(configuration.verify_ssl))
            if configuration.cert_file:
                tls.load_cert_chain(configuration.cert_file, configuration.key_file)
        except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
            raise UserError(f"{source}: bad certificate: {error}", hint="check its certificates and keys") from error
    endpoint = _endpoint(
        configuration.host,
        tls,
        tls_name=configuration.tls_server_name or "",
        proxy=configuration.proxy or "",
        impersonation=impersonation,
    )
    return _transport(endpoint), endpoint


def _tls(ca_pem: str | None, source: str, *, verify: bool) -> ssl.SSLContext:
    try:
        return client_context(ca_pem, verify=verify, openssl_first=True)
    except ssl.SSLError as error:
        raise UserError(f"{source}: bad certificate authority: {error}", hint="it must be PEM") from error


def _endpoint(
    server: str, tls: ssl.SSLContext | None, *, tls_name: str = "", proxy: str = "", impersonation: Headers = ()
) -> Endpoint:
    """Return the endpoint, with the proxy of the kubeconfig or of the environment. Raises UserError."""
    endpoint = endpoint_from_url(server, tls, tls_name=tls_name)
    proxy_url = proxy or _proxy_from_environment(endpoint)
    if proxy_url and not proxy_url.startswith(("http://", "https://")):
        raise UserError(
            f"{proxy_url!r} is not an HTTP proxy", hint="proxy-url looks like http://HOST:PORT, as HTTPS_PROXY"
        )
    return replace(endpoint, proxy=proxy_url, headers=impersonation)


def _proxy_from_environment(endpoint: Endpoint) -> str:
    """Return HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY or loopback excludes it, as in client-go."""
    if endpoint.host in _LOOPBACK or not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""
    import urllib.request

    proxies = urllib.request.getproxies()
    if urllib.request.proxy_bypass(endpoint.host) or _is_in_no_proxy_range(endpoint.host, proxies.get("no", "")):
        return ""
    proxy_url = proxies.get("https" if endpoint.tls else "http", "")
    return f"http://{proxy_url}" if proxy_url and "://" not in proxy_url else proxy_url


def _is_in_no_proxy_range(host: str, no_proxy: str) -> bool:
    """Return True if `host` is an address in a range of NO_PROXY ("10.0.0.0/8"); Python's library ignores ranges."""
    for entry in no_proxy.split(","):
        with contextlib.suppress(ValueError):  # a host name
            if "/" in entry and ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip(), strict=False):
                return True
    return False


def _transport(endpoint: Endpoint) -> Any:
    if endpoint.proxy:
        from kubeloop.kube.client.aiohttp_transport import AiohttpTransport

        return AiohttpTransport(endpoint)
    from kubeloop.kube.client.asyncio_transport import AsyncioTransport

    return AsyncioTransport(endpoint)
