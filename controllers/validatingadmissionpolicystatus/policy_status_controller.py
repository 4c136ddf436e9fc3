"""ValidatingAdmissionPolicy status controller: writes type checking results to the status of policies.

Source: v1.36 pkg/controller/validatingadmissionpolicystatus/controller.go.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from kubeloop.cel.types import DYN, Type
from kubeloop.controllers.api.controller import Controller, ControllerHandle, Result
from kubeloop.controllers.api.objects import Request
from kubeloop.controllers.api.watches import For
from kubeloop.controllers.validatingadmissionpolicystatus.type_checking import (
    MatchedKind,
    TypedKind,
    expression_warnings,
    kinds_to_check,
    object_type,
    params_kind,
)
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.objects.resources import VALIDATING_ADMISSION_POLICIES

_JSON = {"accept": "application/json"}


class PolicyStatusController(Controller):
    """Reconciles ValidatingAdmissionPolicies."""

    name = "validatingadmissionpolicy-status"
    watches = (For(VALIDATING_ADMISSION_POLICIES),)

    def __init__(self, handle: ControllerHandle) -> None:
        super().__init__(handle)
        self._types: dict[tuple[str, MatchedKind], Type | None] = {}  # by URL of the document, which has a hash

    async def reconcile(self, request: Request) -> Result:
        """Check a policy whose spec is newer than its status."""
        policy = self.cache.get(VALIDATING_ADMISSION_POLICIES, request)
        if policy is None:
            return None
        generation = policy["metadata"].get("generation", 0)
        if generation <= (policy.get("status") or {}).get("observedGeneration", 0):
            return None
        warnings = await self._warnings(policy["spec"])
        status = {
            "observedGeneration": generation,
            "typeChecking": {"expressionWarnings": warnings} if warnings else {},
        }
        await self.client.apply_status(
            {
                "apiVersion": VALIDATING_ADMISSION_POLICIES.api_version,
                "kind": VALIDATING_ADMISSION_POLICIES.kind,
                "metadata": {"name": request.name},
                "status": status,
            }
        )
        return None

    async def _warnings(self, spec: JSONValue) -> list[dict[str, JSONValue]]:
        served = await ResourceMap.discover(self.client.raw)
        kinds, params = kinds_to_check(spec, served.resources), params_kind(spec)
        urls = await self._document_urls() if kinds else {}
        matched = [TypedKind(kind, type_) for kind in kinds if (type_ := await self._type(kind, urls)) is not None]
        params_type = None
        if params is not None:
            params_type = await self._type(params, urls) or DYN
        return expression_warnings(spec, matched, params_type)

    async def _document_urls(self) -> dict[str, str]:
        """Return the URLs of the OpenAPI v3 documents by group version path ("apis/apps/v1")."""
        response = await self.client.raw.raw("GET", "/openapi/v3", headers=_JSON)
        paths = msgspec.json.decode(response.body)["paths"]
        return {path: document["serverRelativeURL"] for path, document in paths.items()}

    async def _type(self, kind: MatchedKind, urls: dict[str, str]) -> Type | None:
        """Return the type of a kind, None if no schema of it is served."""
        url = urls.get(f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}")
        if url is None:
            return None
        key = url, kind
        if key not in self._types:
            try:
                response = await self.client.raw.raw("GET", url, headers=_JSON)
            except NotFound:  # the kind has just been removed
                return None
            schemas = msgspec.json.decode(response.body)["components"]["schemas"]
            path = urlsplit(url).path
            outdated = [known for known in self._types if known[0] != url and urlsplit(known[0]).path == path]
            for known in outdated:
                del self._types[known]
            self._types[key] = object_type(schemas, kind, self.clock.now().microsecond * 1000)
        return self._types[key]
