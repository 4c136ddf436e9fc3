"""CertificateSubjectRestriction."""

from __future__ import annotations

from base64 import b64encode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubeloop.devcluster.admission.certificate_subject import check_subject
from support.apiserver.api_requests import InProcessApi

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT = "kubernetes.io/kube-apiserver-client"


def request_of(group: str) -> str:
    """Return a certificate request of a user in the group, in PEM and base64."""
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, "user")]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names))
    signed = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


def test_request_that_cannot_be_parsed_is_left_to_validation():
    check_subject({"metadata": {"name": "c"}, "spec": {"signerName": CLIENT, "request": "bm90aGluZw=="}})


@pytest.mark.parametrize(
    ("group", "signer", "status"),
    [
        ("system:masters", CLIENT, 403),
        ("developers", CLIENT, 201),
        ("system:masters", "example.com/signer", 201),
    ],
)
async def test_client_certificate_of_system_masters_is_refused(group: str, signer: str, status: int):
    spec = {"signerName": signer, "request": request_of(group), "usages": ["client auth"]}
    code, content = InProcessApi()("POST", REQUESTS, {"metadata": {"name": "c"}, "spec": spec})
    assert code == status, content
    if status == 403:
        reason = f"use of {CLIENT} signer with system:masters group is not allowed"
        assert content["message"] == f'certificatesigningrequests.certificates.k8s.io "c" is forbidden: {reason}'
