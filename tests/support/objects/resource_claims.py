"""Pods with resource claims, ResourceClaims and their templates, as JSON and as typed objects."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.kube.objects.device_types import ResourceClaim, ResourceClaimTemplate

JSON = dict[str, Any]
CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
FINALIZER = "resource.kubernetes.io/delete-protection"
ALLOCATION: JSON = {
    "devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"}]}
}


def claim_spec(device_class: str = "gpu.example.com", **exactly: Any) -> JSON:
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": device_class, **exactly}}]}}


def template_body(name: str = "gpus", spec: JSON | None = None, **metadata: Any) -> JSON:
    """Return a ResourceClaimTemplate. metadata: of the claims."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"metadata": metadata, "spec": spec or claim_spec()},
    }


def claim_template(name: str = "gpus", spec: JSON | None = None, **metadata: Any) -> ResourceClaimTemplate:
    return convert(ResourceClaimTemplate, template_body(name, spec, **metadata))


def pod_body(name: str = "web", *claims: JSON, **spec: Any) -> JSON:
    """Return a Pod. claims: its spec.resourceClaims, by default one of the template "gpus"."""
    entries = list(claims) or [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    containers = [{"name": "main", "image": "app:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"containers": containers, "resourceClaims": entries, **spec},
    }


def pod_with_claims(*claims: JSON, **fields: Any) -> Pod:
    """Return the Pod ns/web with the UID "pod-uid". fields: status, deletion_timestamp, and those of the spec."""
    status, deleted = fields.pop("status", {}), fields.pop("deletion_timestamp", None)
    body = pod_body("web", *claims, **fields)
    metadata = {**body["metadata"], "uid": "pod-uid"} | ({"deletionTimestamp": deleted} if deleted else {})
    return convert(Pod, {**body, "metadata": metadata, "status": status})


def pod_claim_status(**names: str | None) -> JSON:
    """Return the status of a Pod with the names of claims, by entry of the Pod; None for a claim that is not needed."""
    statuses = [{"name": entry} | ({"resourceClaimName": name} if name else {}) for entry, name in names.items()]
    return {"resourceClaimStatuses": statuses}


def consumer(name: str = "web", uid: str = "pod-uid") -> JSON:
    return {"resource": "pods", "name": name, "uid": uid}


def resource_claim(
    name: str = "web-gpu-x", *, owner: str = "", entry: str = "", status: JSON | None = None, **metadata: Any
) -> ResourceClaim:
    """Return a claim. owner: UID of the Pod ns/web that it was created for. entry: of that Pod's spec."""
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": owner, "controller": True}] if owner else []
    metadata = {"ownerReferences": owners, **metadata}
    annotations = {CLAIM_ANNOTATION: entry} if entry else {}
    names = {"name": name, "namespace": "ns", "uid": f"uid-of-{name}"}
    body = {
        "metadata": {**names, "annotations": annotations, **metadata},
        "spec": claim_spec(),
        "status": status or {},
    }
    return convert(ResourceClaim, body)


def group_resource_claim(name: str, *, entry: str, status: JSON | None = None) -> ResourceClaim:
    """Return a claim that was created for the PodGroup ns/gang with the UID "group-uid"."""
    owner = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "gang", "uid": "group-uid"}
    return resource_claim(name, entry=entry, status=status, ownerReferences=[{**owner, "controller": True}])
