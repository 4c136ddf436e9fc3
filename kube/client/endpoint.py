"""Where an API server is, and how connections to it are secured. May import msgspec and `errors`."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

import msgspec

from kubeloop.kube.errors import UserError


class Endpoint(msgspec.Struct, frozen=True):
    """An API server.

    tls            the context for new connections; None: plain HTTP
    tls_name       the name the certificate must have, if it is not `host`
    path_prefix    what stands before every path ("" for an API server; others for what sits in front of several)
    proxy          URL of an HTTP proxy, "" for none
    headers        names and values, sent with every request besides its own; a name may stand there more than once
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    tls_name: str = ""
    path_prefix: str = ""
    proxy: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def authority(self) -> str:
        """host:port as in a URL; the port is left out where it goes without saying."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The server's URL, without a slash at the end."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.path_prefix}"


def endpoint_from_url(url: str, tls: ssl.SSLContext | None = None, *, tls_name: str = "") -> Endpoint:
    """The Endpoint at a URL; `tls` is used if it is https. Raises UserError if it is no URL of a server."""
    none = UserError(f"{url!r} is no server address", hint="it looks like https://HOST:PORT")
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        port = parts.port
    except ValueError:  # brackets that do not match, a port that is no number
        raise none from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise none
    secure = parts.scheme == "https"
    return Endpoint(
        host=parts.hostname,
        port=port or (443 if secure else 80),
        tls=(tls or ssl.create_default_context()) if secure else None,
        tls_name=tls_name,
        path_prefix=parts.path.rstrip("/"),
    )
