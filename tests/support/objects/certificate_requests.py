"""CertificateSigningRequests and certificates, with keys of their own."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

KUBELET = "system:node:a"
USAGES = ("digital signature", "client auth")


def subject(common_name: str, *organizations: str) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def signing_request(
    common_name: str = KUBELET,
    organizations: Sequence[str] = ("system:nodes",),
    names: Sequence[x509.GeneralName] = (),
    usages: Sequence[str] = USAGES,
    signer: str = "kubernetes.io/kube-apiserver-client-kubelet",
    extensions: Sequence[x509.ExtensionType] = (),
    key: ec.EllipticCurvePrivateKey | None = None,
) -> dict[str, Any]:
    """Return a CertificateSigningRequest, by default of a kubelet for its client certificate."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject(common_name, *organizations))
    if names:
        extensions = (*extensions, x509.SubjectAlternativeName(names))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    signed = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    pem = signed.public_bytes(serialization.Encoding.PEM)
    spec = {"request": base64.b64encode(pem).decode(), "signerName": signer, "usages": [*usages]}
    return {"metadata": {"name": "csr"}, "spec": spec}


def with_duplicate_extension() -> dict[str, Any]:
    """Return a request of a kubelet in which one extension occurs twice; the builder refuses to create it."""
    numbers = x509.ObjectIdentifier("1.2.3.4"), x509.ObjectIdentifier("1.2.3.5")
    request = signing_request(extensions=[x509.UnrecognizedExtension(number, b"") for number in numbers])
    content = x509.load_pem_x509_csr(base64.b64decode(request["spec"]["request"]))
    encoded = content.public_bytes(serialization.Encoding.DER).replace(b"\x06\x03\x2a\x03\x05", b"\x06\x03\x2a\x03\x04")
    pem = x509.load_der_x509_csr(encoded).public_bytes(serialization.Encoding.PEM)
    request["spec"]["request"] = base64.b64encode(pem).decode()
    return request


def certificate(ends_at: datetime) -> str:
    """Return a certificate that ends at this time, as status.certificate has it."""
    key = ec.generate_private_key(ec.SECP256R1())
    built = (
        x509.CertificateBuilder()
        .subject_name(subject(KUBELET))
        .issuer_name(subject("ca"))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(ends_at - timedelta(days=1))
        .not_valid_after(ends_at)
        .sign(key, hashes.SHA256())
    )
    return base64.b64encode(built.public_bytes(serialization.Encoding.PEM)).decode()
