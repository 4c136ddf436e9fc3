"""DenyServiceExternalIPs: Services get no new externalIPs.

Source: plugin/pkg/admission/network/denyserviceexternalips of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin, refusal
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import SERVICES


class DenyServiceExternalIPs(OptionalPlugin):
    resource = SERVICES

    def check(self, request: Attributes) -> None:
        if not _external_addresses(request.object) <= _external_addresses(request.old):
            raise refusal(request, "Use of external IPs is denied by admission control")


def _external_addresses(service: JSON | None) -> set[str]:
    return set((service or {}).get("spec", {}).get("externalIPs") or ())
