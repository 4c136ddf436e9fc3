"""What is allowed but unwise: the texts of Warning headers. Sources: pkg/api/pod/warnings.go, pkg/api/node/util.go."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.quantity import milli_value
from kubeloop.kube.resources import Resource

JSON = dict[str, Any]

_DEPRECATED_NODE_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "scheduler.alpha.kubernetes.io/tolerations": 'non-functional in v1.7+; use the "tolerations" field instead',
    "scheduler.alpha.kubernetes.io/affinity": 'non-functional in v1.7+; use the "affinity" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_TEMPLATES = {
    ("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("apps", "DaemonSet"),
    ("", "ReplicationController"), ("batch", "Job"),
}  # fmt: skip


def warnings_for(resource: Resource[Any], obj: JSON, old: JSON | None = None) -> list[str]:
    """Warnings about writing `obj`; about an update only where the spec changed."""
    if old is not None and obj.get("spec") == old.get("spec"):
        return []
    key = (resource.group, resource.kind)
    if key == ("", "Pod"):
        return _pod(obj.get("metadata", {}), obj.get("spec", {}), "metadata", "spec")
    if key in _TEMPLATES:
        template = obj.get("spec", {}).get("template") or {}
        return _pod(
            template.get("metadata", {}), template.get("spec", {}), "spec.template.metadata", "spec.template.spec"
        )
    return []


def _pod(metadata: JSON, spec: JSON, metadata_path: str, path: str) -> list[str]:
    found = [
        f"{path}.nodeSelector[{key}]: {_DEPRECATED_NODE_LABELS[key]}"
        for key in sorted(spec.get("nodeSelector", {}))
        if key in _DEPRECATED_NODE_LABELS
    ]
    found += [
        f"{metadata_path}.annotations[{key}]: {_ANNOTATIONS[key]}"
        for key in sorted(metadata.get("annotations", {}))
        if key in _ANNOTATIONS
    ]
    for kind in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(kind) or ()):
            found += _container(container, f"{path}.{kind}[{i}]")
    return found


def _container(container: JSON, path: str) -> list[str]:
    found = []
    for which in ("limits", "requests"):
        for name, quantity in sorted(container.get("resources", {}).get(which, {}).items()):
            if name in ("memory", "ephemeral-storage") and milli_value(quantity) % 1000:
                told = f'fractional byte value "{quantity}" is invalid, must be an integer'
                found.append(f"{path}.resources.{which}[{name}]: {told}")
    seen = set()
    for i, variable in enumerate(container.get("env", ())):
        name = variable.get("name", "")
        if name in seen:
            found.append(
                f'{path}.env[{i}]: hides previous definition of "{name}", which may be dropped when using apply'
            )
        seen.add(name)
    ports: dict[tuple[Any, Any], int] = {}
    for i, port in enumerate(container.get("ports", ())):
        key = (port.get("containerPort"), port.get("protocol"))
        if key in ports:
            told = "duplicate port definition with"
            found.append(f"{path}.ports[{i}]: {told} {path}.ports[{ports[key]}]")
        ports.setdefault(key, i)
    return found
