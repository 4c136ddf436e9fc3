"""The development cluster's certificate: self-signed, made afresh at each start, valid for loopback.

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

from kubeloop.kube.clock import Clock

_VALID = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """A certificate that is its own authority. `certificate_pem` is public; the key is only in `context`."""

    certificate_pem: bytes
    context: ssl.SSLContext


def make_certificate(clock: Clock) -> ServerCertificate:
    """A key and certificate for localhost, 127.0.0.1 and ::1."""
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
        .not_valid_after(now + _VALID)
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
    return ServerCertificate(certificate_pem, _server_context(certificate_pem, key_pem))


def _server_context(certificate_pem: bytes, key_pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # ssl reads keys from files only; this one is readable by its owner and gone at once
    descriptor, path = tempfile.mkstemp(prefix="kubeloop-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate_pem + key_pem)
        context.load_cert_chain(path)
    finally:
        Path(path).unlink()
    return context
