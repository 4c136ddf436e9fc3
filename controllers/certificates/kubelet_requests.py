"""CertificateSigningRequests of kubelets for their client certificates. A pure function of JSON.

Source: v1.36 pkg/controller/certificates/approver/sarapprove.go, pkg/apis/certificates/helpers.go.
"""

from __future__ import annotations

import base64
from typing import NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from kubeloop.kube.objects.api_types import JSONValue

SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
_USAGES = frozenset({"digital signature", "client auth"})


class Permission(NamedTuple):
    """A subresource that the requestor must be allowed to create, and the message of an approval for this reason."""

    subresource: str
    message: str


_SELF = Permission("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.")
_NODE = Permission("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.")


def required_permissions(request: JSONValue) -> list[Permission]:
    """Return the permissions of which one suffices to approve a request; [] for one of another client than a kubelet.

    Raises ValueError for a request that cannot be read.
    """
    spec = request["spec"]
    if spec["signerName"] != SIGNER or {*(spec.get("usages") or ())} - {"key encipherment"} != _USAGES:
        return []
    content = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
    names = [str(name.value) for name in content.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    organizations = [name.value for name in content.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    common_name = names[-1] if names else ""
    if organizations != ["system:nodes"] or not common_name.startswith("system:node:") or _has_other_names(content):
        return []
    return [_SELF, _NODE] if spec.get("username") == common_name else [_NODE]


def _has_other_names(content: x509.CertificateSigningRequest) -> bool:
    """Return True if a request names DNS names, addresses, e-mail addresses or URIs.

    Raises ValueError for extensions that cannot be read.
    """
    try:
        names = content.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:  # not ValueErrors
        raise ValueError(str(error)) from None
    kinds = (x509.DNSName, x509.RFC822Name, x509.IPAddress, x509.UniformResourceIdentifier)
    return any(isinstance(name, kinds) for name in names)
