"""Address of an API server, and the TLS settings of connections to it. Imports msgspec and `user_error`."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

import msgspec

from kubeloop.kube.user_error import UserError


class Endpoint(msgspec.Struct, frozen=True):
    """An API server.

    tls            context for new connections; None: plain HTTP
    tls_name       name that the certificate must have, if it is not `host`
    path_prefix    prefix of all paths ("" for an API server; set for a proxy in front of several servers)
    proxy          URL of an HTTP proxy, "" for none
    headers        names and values added to every request; a name may occur more than once
    address        host and port to connect to, if they are not `host` and `port`
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    tls_name: str = ""
    path_prefix: str = ""
    proxy: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    address: tuple[str, int] | None = None

    @property
    def authority(self) -> str:
        """host:port as in a URL, without the scheme's default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """URL of the server, without a trailing slash."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.path_prefix}"


def endpoint_from_url(url: str, tls: ssl.SSLContext | None = None, *, tls_name: str = "") -> Endpoint:
    """Parse the URL of a server; `tls` is used for https. Raises UserError if it is not a server URL."""
    invalid_url = UserError(f"{url!r} is not a server address", hint="it looks like https://HOST:PORT")
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        port = parts.port
    except ValueError:  # unbalanced brackets, or a port that is not a number
        raise invalid_url from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise invalid_url
    secure = parts.scheme == "https"
    return Endpoint(
        host=parts.hostname,
        port=port or (443 if secure else 80),
        tls=(tls or ssl.create_default_context()) if secure else None,
        tls_name=tls_name,
        path_prefix=parts.path.rstrip("/"),
    )
