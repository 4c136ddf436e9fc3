"""Certificates for tests: authorities and the certificates that they sign, with any or no extensions."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = datetime.now(UTC).replace(microsecond=0)


@dataclass(frozen=True)
class Issued:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def server_context(self, *intermediates: Issued) -> ssl.SSLContext:
        """Return the TLS context of a server with this certificate."""
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile() as file:
            file.write("".join(entry.pem for entry in (self, *intermediates)).encode() + key)
            file.flush()
            context.load_cert_chain(file.name)
        return context


def name_of(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)] if text else [])


def issue(
    subject: str,
    issuer: Issued | None = None,
    *,
    authority: bool | None = None,
    hosts: tuple[str, ...] = (),
    extensions: tuple[x509.ExtensionType, ...] = (),
    begin: datetime = NOW - timedelta(hours=1),
    end: datetime = NOW + timedelta(hours=1),
    path_length: int | None = None,
) -> Issued:
    """Return a new certificate. issuer: None to sign it by itself. authority: of BasicConstraints; None for none."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(name_of(subject))
        .issuer_name(name_of(subject) if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )
    if authority is not None:
        builder = builder.add_extension(x509.BasicConstraints(authority, path_length), critical=True)
    if hosts:
        names = [x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    return Issued(builder.sign(key if issuer is None else issuer.key, hashes.SHA256()), key)
