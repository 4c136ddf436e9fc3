"""CertificateSigningRequest approver: approves client certificates of kubelets that may request them.

Source: v1.36 pkg/controller/certificates/approver/sarapprove.go.
"""

from __future__ import annotations

import logging

from kubeloop.controllers.certificates.kubelet_requests import Permission, required_permissions
from kubeloop.controllers.runtime.controller import EventDrivenController, ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.queue.rate_limiter import controller_rate_limiter
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.objects.resources import CERTIFICATE_SIGNING_REQUESTS, json_resource

log = logging.getLogger(__name__)

_REVIEWS = json_resource("authorization.k8s.io/v1", "SubjectAccessReview", namespaced=False)
_REVIEW_AGAIN_SECONDS = 60.0  # for permissions that are granted later


class CertificateSigningRequestApprover(EventDrivenController):
    """Reconciles CertificateSigningRequests, by name; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "csrapproving", "certificate", controller_rate_limiter(base=0.2))
        requests = context.informers.informer(CERTIFICATE_SIGNING_REQUESTS)
        self._requests = requests.store
        self._registrations = (requests.on_latest(lambda request: self.queue.add(request["metadata"]["name"])),)

    async def reconcile(self, name: str) -> float | None:
        """Approve a request of a kubelet. An exception means: retry with backoff."""
        request = self._requests.get(name)
        if request is None or _is_decided(request):
            return None
        try:
            permissions = required_permissions(request)
        except ValueError as error:
            raise ReconcileError(f"unable to parse csr {name}: {error}") from None
        for permission in permissions:
            if await self._is_allowed(request, permission):
                await self._approve(request, permission.message)
                return None
        if permissions:
            log.debug("CertificateSigningRequest %s: its requestor may not create it", name)
            return _REVIEW_AGAIN_SECONDS
        return None

    async def _is_allowed(self, request: JSONValue, permission: Permission) -> bool:
        spec = request["spec"]
        attributes = {
            "group": CERTIFICATE_SIGNING_REQUESTS.group,
            "resource": CERTIFICATE_SIGNING_REQUESTS.plural,
            "verb": "create",
            "subresource": permission.subresource,
            "version": "*",
        }
        names = {"username": "user", "uid": "uid", "groups": "groups", "extra": "extra"}
        requestor = {name: spec[field] for field, name in names.items() if spec.get(field)}
        body = {
            "apiVersion": _REVIEWS.api_version,
            "kind": _REVIEWS.kind,
            "spec": {**requestor, "resourceAttributes": attributes},
        }
        review = await self._client.create(_REVIEWS, body)
        return bool((review.get("status") or {}).get("allowed"))

    async def _approve(self, request: JSONValue, message: str) -> None:
        status = request.get("status") or {}
        condition = {"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message}
        body = {**request, "status": {**status, "conditions": [*(status.get("conditions") or ()), condition]}}
        name = request["metadata"]["name"]
        await self._client.update(CERTIFICATE_SIGNING_REQUESTS, name, body, subresource="approval")


def _is_decided(request: JSONValue) -> bool:
    """Return True for a request that is approved, denied or fulfilled."""
    status = request.get("status") or {}
    types = {condition["type"] for condition in status.get("conditions") or ()}
    return bool(status.get("certificate")) or not types.isdisjoint({"Approved", "Denied"})
