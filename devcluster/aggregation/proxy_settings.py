"""Settings of connections to aggregated API servers."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from kubeloop.kube.user_error import UserError


class ProxySettings(msgspec.Struct, frozen=True):
    """Settings of the requests to aggregated API servers.

    client_pem: certificate of this server as their front proxy, with its key; b"" for that of FrontProxy.
    refuses_redirects: responses that redirect the client are errors.
    """

    client_pem: bytes = b""
    refuses_redirects: bool = True


DEFAULT_SETTINGS = ProxySettings()


def read_client_pem(certificate: Path, key: Path) -> bytes:
    """Return certificate and key of the files of --proxy-client-cert-file and -key-file. Raises UserError."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key)
        return certificate.read_bytes() + b"\n" + key.read_bytes()
    except OSError as error:  # SSLError among them
        problem = f"--proxy-client-cert-file: no certificate and key in {certificate} and {key}: {error}"
        raise UserError(problem, hint="name a file with a certificate, and one with its key, in PEM") from None
