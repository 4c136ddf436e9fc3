"""A certificate authority: the certificate and private key that sign the certificates of servers and clients.

Source: kubernetes pkg/controller/certificates/authority and cmd/kubeadm/app/util/pkiutil of v1.36.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from kubeloop.kube.user_error import UserError

BACKDATE = timedelta(minutes=5)  # clocks of clients may be behind
SigningKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
_VALIDITY = timedelta(days=3650)


class Extension(NamedTuple):
    """An extension of a certificate that is to be signed."""

    value: x509.ExtensionType
    critical: bool = False


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """Signs certificates. The key may be RSA, Ed25519 or of an elliptic curve."""

    certificate: x509.Certificate
    key: SigningKey

    @classmethod
    def create(cls, now: datetime) -> CertificateAuthority:
        """Return a new authority, valid for ten years, with the name that kubeadm gives to that of a cluster."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        extensions = [
            Extension(x509.BasicConstraints(ca=True, path_length=None), critical=True),
            Extension(key_usage("digital_signature", "key_encipherment", "key_cert_sign"), critical=True),
            Extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key())),
        ]
        validity = (now - BACKDATE, now + _VALIDITY)
        return cls(_signed(name, name, key.public_key(), validity, extensions, key), key)

    @classmethod
    def from_pem(cls, certificate_pem: bytes, key_pem: bytes) -> CertificateAuthority:
        """Return the authority with the first certificate and the unencrypted private key. Raises ValueError."""
        try:
            key = serialization.load_pem_private_key(key_pem, password=None)
        except (TypeError, UnsupportedAlgorithm) as error:
            raise ValueError(str(error)) from None
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        if key.public_key() != certificate.public_key():
            raise ValueError("the private key is not that of the certificate")
        if not isinstance(key, SigningKey):
            raise ValueError("the private key is neither RSA, Ed25519 nor of an elliptic curve")
        return cls(certificate, key)

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def pem(self) -> bytes:
        """Return certificate and private key."""
        return self.certificate_pem.encode() + private_key_pem(self.key)

    def sign(
        self, subject: x509.Name, public_key: Any, validity: tuple[datetime, datetime], extensions: Iterable[Extension]
    ) -> x509.Certificate:
        """Return a certificate that cannot sign others, with the identifier of this authority.

        validity: first and last moment; a certificate does not outlive its authority.
        """
        try:
            identifier = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
            issuer = [Extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier.value))]
        except x509.ExtensionNotFound:
            issuer = []
        leaf = Extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        validity = (validity[0], min(validity[1], self.certificate.not_valid_after_utc))
        return _signed(subject, self.certificate.subject, public_key, validity, [*extensions, leaf, *issuer], self.key)


SigningAuthority = Callable[[str], CertificateAuthority | None]
"""Return the authority of a signer of CertificateSigningRequests, by its name; None for a signer without one."""


def read_authority(certificate: Path, key: Path) -> CertificateAuthority:
    """Return the authority whose certificate and private key, in PEM, are in these files. Raises UserError."""
    try:
        return CertificateAuthority.from_pem(certificate.read_bytes(), key.read_bytes())
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(
            f"cannot read a certificate authority from {certificate} and {key}: {problem}",
            hint="they take a certificate and its unencrypted private key in PEM",
        ) from None


def load_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Let connections with `context` present a certificate, given with its private key."""
    with tempfile.NamedTemporaryFile() as file:  # OpenSSL reads files only; mode 0600, deleted at the end
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)


def private_key_pem(key: SigningKey) -> bytes:
    """Return an unencrypted private key in PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def key_usage(*names: str) -> x509.KeyUsage:
    """Return the extension that permits these uses of a key, named as parameters of x509.KeyUsage."""
    uses = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{use: use in names for use in uses})


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: Any,
    validity: tuple[datetime, datetime],
    extensions: Iterable[Extension],
    key: SigningKey,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity[0])
        .not_valid_after(validity[1])
    )
    for extension in extensions:
        builder = builder.add_extension(*extension)
    return builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
