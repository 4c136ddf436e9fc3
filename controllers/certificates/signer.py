"""CertificateSigningRequest signer: issues the certificates of approved requests of the signers of Kubernetes.

Source: v1.36 pkg/controller/certificates/signer/signer.go.
"""

from __future__ import annotations

import base64

from kubeloop.controllers.certificates.signer_rules import (
    SIGNERS,
    parsed_request,
    request_problem,
    requested_seconds,
    sign,
)
from kubeloop.controllers.runtime.controller import EventDrivenController, ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.queue.rate_limiter import controller_rate_limiter
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.objects.resources import CERTIFICATE_SIGNING_REQUESTS


class CertificateSigningRequestSigner(EventDrivenController):
    """Reconciles CertificateSigningRequests, by name; `run()` works until cancelled. The context must have
    `signing_authority`."""

    def __init__(self, context: ControllerContext) -> None:
        assert context.signing_authority is not None
        super().__init__(context, "csrsigning", "certificate", controller_rate_limiter(base=0.2))
        self._authority = context.signing_authority
        self._longest_seconds = context.options["cluster_signing_duration"]
        requests = context.informers.informer(CERTIFICATE_SIGNING_REQUESTS)
        self._requests = requests.store
        self._registrations = (requests.on_latest(lambda request: self.queue.add(request["metadata"]["name"])),)

    async def reconcile(self, name: str) -> float | None:
        """Issue the certificate of an approved request. An exception means: retry with backoff."""
        request = self._requests.get(name)
        if request is None or request["spec"]["signerName"] not in SIGNERS or not _is_approved(request):
            return None
        spec = request["spec"]
        authority = self._authority(spec["signerName"])
        if authority is None:
            return None
        usages = spec.get("usages") or []
        try:
            content = parsed_request(request)
            if problem := request_problem(spec["signerName"], content, usages):
                await self._write_status(request, conditions=[*_conditions(request), self._failure(problem)])
                return None
            seconds = requested_seconds(spec.get("expirationSeconds"), self._longest_seconds)
            certificate = sign(content, usages, seconds, authority, self._clock.now())
        except ValueError as error:
            raise ReconcileError(f"unable to sign csr {name}: {error}") from None
        await self._write_status(request, certificate=base64.b64encode(certificate.encode()).decode())
        return None

    def _failure(self, problem: str) -> JSONValue:
        return {
            "type": "Failed",
            "status": "True",
            "reason": "SignerValidationFailure",
            "message": problem,
            "lastUpdateTime": rfc3339(self._clock.now()),
        }

    async def _write_status(self, request: JSONValue, **fields: JSONValue) -> None:
        body = {**request, "status": {**(request.get("status") or {}), **fields}}
        await self._client.update(CERTIFICATE_SIGNING_REQUESTS, request["metadata"]["name"], body, subresource="status")


def _conditions(request: JSONValue) -> list[JSONValue]:
    return (request.get("status") or {}).get("conditions") or []


def _is_approved(request: JSONValue) -> bool:
    """Return True for a request that is approved, and neither denied, failed nor fulfilled."""
    if (request.get("status") or {}).get("certificate"):
        return False
    conditions = _conditions(request)
    types = {condition["type"] for condition in conditions}
    has_failed = any(
        condition["type"] == "Failed" and condition.get("status", "") in ("", "True") for condition in conditions
    )
    return "Approved" in types and "Denied" not in types and not has_failed
