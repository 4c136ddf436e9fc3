"""Manifests of the scenarios, and facts about stored objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeloop.kube.objects.resources import Resource

JSON = dict[str, Any]
NAMESPACE = "default"


def container(image: str = "app:1", cpu: str = "100m") -> JSON:
    return {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}


def pod_template(
    app: str, *, image: str = "app:1", cpu: str = "100m", annotations: Mapping[str, str] = {}, **spec: Any
) -> JSON:
    """Return the template of pods with the label app and one container. annotations: of the simulated kubelet."""
    metadata: JSON = {"labels": {"app": app}}
    if annotations:
        metadata["annotations"] = {f"kubeloop.dev/{name}": value for name, value in annotations.items()}
    return {"metadata": metadata, "spec": {"containers": [container(image, cpu)], **spec}}


def manifest(resource: Resource[Any], name: str, *, namespace: str = NAMESPACE, **fields: Any) -> JSON:
    """Return an object. fields: top-level ones, and `labels`, `annotations`, `owners`, `finalizers` of metadata."""
    metadata: JSON = {"name": name}
    if resource.namespaced:
        metadata["namespace"] = namespace
    for field, key in (
        ("labels", "labels"),
        ("annotations", "annotations"),
        ("owners", "ownerReferences"),
        ("finalizers", "finalizers"),
    ):
        if field in fields:
            metadata[key] = fields.pop(field)
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}


def workload(
    resource: Resource[Any], name: str, *, image: str = "app:1", pod: Mapping[str, Any] = {}, **spec: Any
) -> JSON:
    """Return a Deployment, ReplicaSet, StatefulSet or DaemonSet. pod: arguments of pod_template."""
    template = pod_template(name, image=image, **pod)
    return manifest(resource, name, spec={"selector": {"matchLabels": {"app": name}}, "template": template, **spec})


# --- facts about stored objects ---------------------------------------------------------------------------------------


def name_of(obj: JSON) -> str:
    name: str = obj["metadata"]["name"]
    return name


def uid_of(obj: JSON) -> str:
    uid: str = obj["metadata"]["uid"]
    return uid


def controller_of(obj: JSON) -> JSON:
    """Return the controller's owner reference; {} without one."""
    for owner in obj["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            return dict(owner)
    return {}


def is_terminating(obj: JSON) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def is_finished(pod: JSON) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_active(pod: JSON) -> bool:
    return not is_terminating(pod) and not is_finished(pod)


def is_true(obj: JSON, condition_type: str) -> bool:
    conditions = obj.get("status", {}).get("conditions", ())
    return any(condition["type"] == condition_type and condition["status"] == "True" for condition in conditions)


def is_ready(pod: JSON) -> bool:
    return is_active(pod) and is_true(pod, "Ready")


def image_of(pod: JSON) -> str:
    image: str = pod["spec"]["containers"][0]["image"]
    return image


def matches(selector: Mapping[str, str], obj: JSON) -> bool:
    labels = obj["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, value in selector.items())
