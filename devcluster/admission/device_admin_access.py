"""Admin access to devices, which requires a label of the claim's namespace.

kube-apiserver checks it together with the other rules of the kinds, here it comes after them: an object that also has
other errors is rejected with those. Source: pkg/registry/resource/utils.go of Kubernetes v1.36.
"""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES, Resource

_LABEL = "resource.kubernetes.io/admin-access"


def check_requests(store: ObjectStore, resource: Resource[Any], obj: JSON, spec: JSON) -> None:
    """Raise StatusError 422 for a new claim or template that may not request admin access. spec: of the claim."""
    for number, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            _check_namespace(store, resource, obj, f"spec.devices.requests[{number}].adminAccess")
            return


def check_allocation(store: ObjectStore, resource: Resource[Any], obj: JSON, old: JSON) -> None:
    """Raise StatusError 422 for a new allocation of a claim that may not have admin access."""
    granted = [number for number, result in enumerate(_results(obj)) if result.get("adminAccess")]
    if granted and not any(result.get("adminAccess") for result in _results(old)):
        _check_namespace(store, resource, obj, f"status.allocation.devices.results[{granted[0]}].adminAccess")


def _results(claim: JSON) -> list[JSON]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


def _check_namespace(store: ObjectStore, resource: Resource[Any], obj: JSON, path: str) -> None:
    namespace = store.get(NAMESPACES, "", obj["metadata"]["namespace"])
    if namespace is not None and namespace["metadata"].get("labels", {}).get(_LABEL) == "true":
        return
    message = f"Forbidden: admin access to devices requires the `{_LABEL}: true` label on the containing namespace"
    causes = [errors.cause("FieldValueForbidden", path, message)]
    raise errors.invalid(resource.group, resource.kind, obj["metadata"]["name"], causes)
