"""Admin access to devices, which requires a label of the claim's namespace.

Source: pkg/registry/resource/utils.go of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES

_LABEL = "resource.kubernetes.io/admin-access"


def check_requests(store: ObjectStore, obj: JSON, spec: JSON) -> list[JSON]:
    """Return the cause against a new claim or template that may not request admin access. spec: of the claim."""
    for number, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            return _check_namespace(store, obj, f"spec.devices.requests[{number}].adminAccess")
    return []


def check_allocation(store: ObjectStore, obj: JSON, old: JSON) -> list[JSON]:
    """Return the cause against a new allocation of a claim that may not have admin access."""
    granted = [number for number, result in enumerate(_results(obj)) if result.get("adminAccess")]
    if not granted or any(result.get("adminAccess") for result in _results(old)):
        return []
    return _check_namespace(store, obj, f"status.allocation.devices.results[{granted[0]}].adminAccess")


def _results(claim: JSON) -> list[JSON]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


def _check_namespace(store: ObjectStore, obj: JSON, path: str) -> list[JSON]:
    namespace = store.get(NAMESPACES, "", obj["metadata"]["namespace"])
    if namespace is not None and namespace["metadata"].get("labels", {}).get(_LABEL) == "true":
        return []
    message = f"Forbidden: admin access to devices requires the `{_LABEL}: true` label on the containing namespace"
    return [errors.cause("FieldValueForbidden", path, message)]
