"""Certificate authority: its own certificate, and the certificates that it signs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from kubeloop.kube.auth.certificate_authority import CertificateAuthority, SigningKey, private_key_pem

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])


def sign(authority: CertificateAuthority, *, days: float = 1) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return authority.sign(NAME, key, (NOW, NOW + timedelta(days=days)), [])


def test_authority_can_sign_certificates_for_ten_years():
    certificate = CertificateAuthority.create(NOW).certificate
    assert certificate.subject.rfc4514_string() == "CN=kubernetes"
    assert certificate.not_valid_after_utc == NOW + timedelta(days=3650)
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_signed_certificate_names_its_authority_and_cannot_sign():
    authority = CertificateAuthority.create(NOW)
    certificate = sign(authority)
    certificate.verify_directly_issued_by(authority.certificate)
    own = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    identifier = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert identifier.key_identifier == own.key_identifier
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize(("days", "end"), [(1, NOW + timedelta(days=1)), (4000, NOW + timedelta(days=3650))])
def test_certificate_does_not_outlive_its_authority(days: float, end: datetime):
    assert sign(CertificateAuthority.create(NOW), days=days).not_valid_after_utc == end


@pytest.mark.parametrize(
    "new_key",
    [
        pytest.param(lambda: rsa.generate_private_key(65537, 2048), id="RSA"),
        pytest.param(ed25519.Ed25519PrivateKey.generate, id="Ed25519"),
        pytest.param(lambda: ec.generate_private_key(ec.SECP384R1()), id="P-384"),
    ],
)
def test_authority_is_read_from_pem(new_key: Callable[[], SigningKey]):
    key = new_key()
    certificate = CertificateAuthority.create(NOW).sign(NAME, key.public_key(), (NOW, NOW + timedelta(days=1)), [])
    authority = CertificateAuthority.from_pem(certificate.public_bytes(Encoding.PEM), private_key_pem(key))
    assert authority.certificate == certificate
    sign(authority).verify_directly_issued_by(certificate)


def test_unusable_pem_is_an_error():
    authority, other = CertificateAuthority.create(NOW), CertificateAuthority.create(NOW)
    pem = authority.pem()
    with pytest.raises(ValueError, match="not that of the certificate"):
        CertificateAuthority.from_pem(pem, other.pem())
    with pytest.raises(ValueError, match="private key"):
        CertificateAuthority.from_pem(pem, authority.certificate_pem.encode())
    key = dsa.generate_private_key(1024)
    signed = authority.sign(NAME, key.public_key(), (NOW, NOW + timedelta(days=1)), [])
    with pytest.raises(ValueError, match="neither RSA"):
        CertificateAuthority.from_pem(signed.public_bytes(Encoding.PEM), private_key_pem(key))
