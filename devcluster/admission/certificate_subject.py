"""CertificateSubjectRestriction: no client certificates for the group system:masters.

Source: plugin/pkg/admission/certificates/subjectrestriction of Kubernetes v1.36.
"""

from __future__ import annotations

from base64 import b64decode

from cryptography import x509
from cryptography.x509.oid import NameOID

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import CERTIFICATE_SIGNING_REQUESTS
from kubeloop.kube.json_object import JSON

_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"


def check_subject(signing_request: JSON) -> None:
    """Raise StatusError 403 if a new signing request asks for a client certificate of system:masters.

    A request that cannot be parsed is a matter of validation.
    """
    spec = signing_request["spec"]
    if spec.get("signerName") != _CLIENT_SIGNER:
        return
    try:
        subject = x509.load_pem_x509_csr(b64decode(spec.get("request") or "")).subject
    except ValueError:
        return
    if any(group.value == "system:masters" for group in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)):
        message = f"use of {_CLIENT_SIGNER} signer with system:masters group is not allowed"
        raise errors.forbidden(CERTIFICATE_SIGNING_REQUESTS, errors.name_in_message(signing_request), message)
