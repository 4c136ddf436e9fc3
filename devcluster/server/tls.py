"""TLS of the development cluster: its certificate authority, its serving certificate, certificates of clients.

kubectl and every client-go program send a bearer token over TLS only.
"""

from __future__ import annotations

import _ssl
import ipaddress
import ssl
import sys
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeloop.devcluster.storage.private_files import read_or_create
from kubeloop.kube.auth.certificate_authority import (
    BACKDATE,
    CertificateAuthority,
    Extension,
    key_usage,
    load_certificate,
    private_key_pem,
)
from kubeloop.kube.clock import Clock

_SERVER = "server.pem"  # certificate and key
_VALIDITY = timedelta(days=365)
_MIN_REMAINING = timedelta(days=30)  # a stored certificate with less validity is replaced at a start


class ServerCertificate(NamedTuple):
    """Certificate and key of the server, in PEM, and the authority of the cluster, which signed it."""

    authority: CertificateAuthority
    pem: bytes

    def context(self, client_ca: str = "") -> ssl.SSLContext:
        """Return the context of connections to the server. client_ca: authorities of clients, "" for the cluster's.

        See server_context().
        """
        return server_context(self.pem, client_ca or self.authority.certificate_pem)


def server_context(pem: bytes, client_ca: str) -> ssl.SSLContext:
    """Return the context of connections to a server. pem: its certificates and key; client_ca: authorities of clients.

    With authorities, it requests a certificate from each client. The handshake accepts every one, as kube-apiserver's:
    the server verifies it with each request, and a request with an invalid one gets 401. Without session tickets, which
    would not contain intermediate certificates. Raises ssl.SSLError if `pem` is no certificate with its key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, pem)
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if client_ca:
        context.verify_mode = ssl.CERT_OPTIONAL
        if not _accept_any_certificate(context):
            context.load_verify_locations(cadata=client_ca)
    return context


def create_certificate(clock: Clock) -> ServerCertificate:
    """Create an authority, and a key and certificate for localhost, 127.0.0.1 and ::1."""
    authority = CertificateAuthority.create(clock.now())
    return ServerCertificate(authority, _new_pem(authority, clock))


def stored_certificate(authority_file: Path, clock: Clock) -> ServerCertificate:
    """Return the authority in this file, and the certificate beside it; create what is missing or about to expire.

    Raises UserError.
    """

    def is_authority(pem: bytes) -> bool:
        try:
            stored = CertificateAuthority.from_pem(pem, pem)
        except ValueError:
            return False
        return stored.certificate.not_valid_after_utc > clock.now() + _VALIDITY

    def is_usable(pem: bytes) -> bool:
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            serialization.load_pem_private_key(pem, password=None)
            certificate.verify_directly_issued_by(authority.certificate)
        except (ValueError, InvalidSignature):
            return False
        return certificate.not_valid_after_utc > clock.now() + _MIN_REMAINING

    pem = read_or_create(authority_file, lambda: CertificateAuthority.create(clock.now()).pem(), is_authority)
    authority = CertificateAuthority.from_pem(pem, pem)
    server_file = authority_file.with_name(_SERVER)
    return ServerCertificate(authority, read_or_create(server_file, lambda: _new_pem(authority, clock), is_usable))


def _new_pem(authority: CertificateAuthority, clock: Clock) -> bytes:
    """Return a new certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
    certificate = authority.sign(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")]),
        key.public_key(),
        (clock.now() - BACKDATE, clock.now() + _VALIDITY),
        [
            Extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses])),
            Extension(key_usage("digital_signature", "key_encipherment"), critical=True),
            Extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])),
        ],
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + private_key_pem(key)


def _accept_any_certificate(context: ssl.SSLContext) -> bool:
    """Let handshakes with `context` succeed with any certificate of the client; return False where that is impossible.

    Python has no option for this: CERT_OPTIONAL fails the handshake if OpenSSL cannot verify the certificate, and
    CERT_NONE requests none.
    """
    import ctypes

    set_callback = _openssl_function("SSL_CTX_set_cert_verify_callback")
    if set_callback is None:
        return False
    # the first field of the object behind its header (PySSLContext in CPython's Modules/_ssl.c)
    native_context = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    set_callback(native_context, _accept(), None)
    return True


@cache
def _accept() -> Any:
    """Return the callback that accepts every certificate."""
    import ctypes

    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda _store_context, _argument: 1)


@cache
def _openssl_function(name: str) -> Any:
    """Return a function of the OpenSSL that the module ssl uses; None if it cannot be determined."""
    if sys.implementation.name != "cpython":
        return None
    import ctypes

    function = getattr(ctypes.CDLL(getattr(_ssl, "__file__", None)), name, None)
    if function is not None:
        function.restype = None
    return function
