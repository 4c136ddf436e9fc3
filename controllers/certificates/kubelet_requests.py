"""CertificateSigningRequests of kubelets for their client certificates. A pure function of JSON.

Source: v1.36 pkg/controller/certificates/approver/sarapprove.go.
"""

from __future__ import annotations

from typing import NamedTuple

from kubeloop.controllers.certificates.signer_rules import (
    KUBELET_CLIENT,
    common_name,
    parsed_request,
    request_problem,
)
from kubeloop.kube.objects.api_types import JSONValue


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
    if spec["signerName"] != KUBELET_CLIENT:
        return []
    content = parsed_request(request)
    if request_problem(KUBELET_CLIENT, content, spec.get("usages") or ()):
        return []
    return [_SELF, _NODE] if spec.get("username") == common_name(content) else [_NODE]
