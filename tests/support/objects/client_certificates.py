"""Certificates of clients, and the TLS contexts that present them."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeloop.kube.auth.certificate_authority import CertificateAuthority, Extension, private_key_pem

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")


class ClientCertificate(NamedTuple):
    """certificate: of the client; pem: with the key and, behind it, the intermediate certificates."""

    certificate: x509.Certificate
    pem: bytes

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def context(self, ca_pem: str) -> ssl.SSLContext:
        """Return the context of a client that presents the certificate to a server of the authority `ca_pem`."""
        context = ssl.create_default_context(cadata=ca_pem)
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.pem)
            file.flush()
            context.load_cert_chain(file.name)
        return context


def client_certificate(
    authority: CertificateAuthority,
    user: str = "alice",
    groups: Sequence[str] = (),
    *,
    uids: Sequence[str] = (),
    dns_names: Sequence[str] = (),
    usage: x509.ObjectIdentifier | None = CLIENT,
    begin: datetime | None = None,
    days: float = 1,
    intermediate: CertificateAuthority | None = None,
) -> ClientCertificate:
    """Return a certificate signed by `authority`, or by an intermediate one that is sent along. begin: None for now."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [(NameOID.ORGANIZATION_NAME, group) for group in groups]
    names += [(NameOID.COMMON_NAME, user)] if user else []
    names += [(UID, uid) for uid in uids]
    subject = x509.Name([x509.NameAttribute(oid, text, _validate=False) for oid, text in names])
    begin = begin or datetime.now(UTC)
    extensions = [] if usage is None else [Extension(x509.ExtendedKeyUsage([usage]))]
    if dns_names:
        extensions.append(Extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in dns_names])))
    validity = (begin, begin + timedelta(days=days))
    certificate = (intermediate or authority).sign(subject, key.public_key(), validity, extensions)
    chain = certificate.public_bytes(Encoding.PEM) + private_key_pem(key)
    return ClientCertificate(certificate, chain + (intermediate.certificate_pem.encode() if intermediate else b""))


def intermediate_authority(authority: CertificateAuthority, now: datetime) -> CertificateAuthority:
    """Return an authority whose certificate `authority` has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = CertificateAuthority.create(now)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "intermediate")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(authority.certificate.subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(own.certificate.not_valid_before_utc)
    builder = builder.not_valid_after(own.certificate.not_valid_after_utc)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return CertificateAuthority(builder.sign(authority.key, own.certificate.signature_hash_algorithm), key)
