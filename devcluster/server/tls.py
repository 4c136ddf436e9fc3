"""The development cluster's certificate: self-signed, valid for loopback, created at each start or stored.

kubectl and every client-go program send a bearer token over TLS only.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubeloop.devcluster.storage.private_files import read_or_create
from kubeloop.kube.clock import Clock

_VALIDITY = timedelta(days=365)
_MIN_REMAINING = timedelta(days=30)  # a stored certificate with less validity is replaced at a start


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """A self-signed certificate. `certificate_pem` is public; the key is only in `context`."""

    certificate_pem: bytes
    context: ssl.SSLContext


def create_certificate(clock: Clock) -> ServerCertificate:
    """Create a key and certificate for localhost, 127.0.0.1 and ::1."""
    return _certificate_from(_new_pem(clock))


def stored_certificate(folder: Path, clock: Clock) -> ServerCertificate:
    """Return the certificate stored in `folder`, or create it if missing or about to expire. Raises UserError."""

    def is_usable(pem: bytes) -> bool:
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            serialization.load_pem_private_key(pem, password=None)
        except ValueError:
            return False
        return certificate.not_valid_after_utc > clock.now() + _MIN_REMAINING

    return _certificate_from(read_or_create(folder / "server.pem", lambda: _new_pem(clock), is_usable))


def _new_pem(clock: Clock) -> bytes:
    """Return certificate and key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubeloop development cluster")])
    now = clock.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [
                    x509.DNSName("localhost"),
                    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                    x509.IPAddress(ipaddress.ip_address("::1")),
                ]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    certificate_pem = certificate.public_bytes(serialization.Encoding.PEM)
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate_pem + key_pem


def _certificate_from(pem: bytes) -> ServerCertificate:
    certificate = x509.load_pem_x509_certificate(pem)
    return ServerCertificate(certificate.public_bytes(serialization.Encoding.PEM), _server_context(pem))


def _server_context(pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # ssl reads keys from files only; this one is readable by its owner and deleted right away
    descriptor, path = tempfile.mkstemp(prefix="kubeloop-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
        context.load_cert_chain(path)
    finally:
        Path(path).unlink()
    return context
