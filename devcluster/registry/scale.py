"""autoscaling/v1 Scale of an object: its replicas and its selector.

Source: pkg/registry/apps/*/storage (scaleFromDeployment and the like) of Kubernetes v1.36.
"""

from __future__ import annotations

from typing import Any

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import LabelSelector, convert
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.selectors.selectors import selector_from

SCALE: Resource[JSON] = Resource("autoscaling", "v1", "Scale", "", True, dict)


def scale_of(obj: JSON) -> JSON:
    """Return the Scale of a Deployment, ReplicaSet, StatefulSet or ReplicationController."""
    spec, status = obj.get("spec", {}), obj.get("status", {})
    return scale_document(obj, spec.get("replicas"), status.get("replicas"), _selector_text(spec.get("selector")))


def scale_document(obj: JSON, replicas: int | None, current_replicas: int | None, selector: str) -> JSON:
    """Return a Scale. replicas: desired; current_replicas: of the status; selector: of the pods, or ""."""
    metadata = obj["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {"replicas": current_replicas or 0, **({"selector": selector} if selector else {})},
    }


def _selector_text(selector: Any) -> str:
    if not selector:
        return ""
    if "matchLabels" in selector or "matchExpressions" in selector:
        return str(selector_from(convert(LabelSelector, selector)))
    return ",".join(f"{name}={value}" for name, value in sorted(selector.items()))
