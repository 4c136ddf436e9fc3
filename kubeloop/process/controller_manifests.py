"""Manifests that run custom controllers in a cluster: Deployment, ServiceAccount, and the RBAC rules they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kubeloop.controllers.api.controller import Controller
from kubeloop.controllers.api.permissions import rules_for

_RBAC = "rbac.authorization.k8s.io"
_PORT = 8080


class Installation(msgspec.Struct, frozen=True):
    """Options of the manifests that install controllers.

    name: of all objects. arguments: of --controllers. replicas: more than one take turns by leader election.
    """

    name: str
    namespace: str
    image: str
    arguments: str
    replicas: int = 1


def controller_manifests(classes: Sequence[type[Controller]], installation: Installation) -> list[dict[str, Any]]:
    """Return the objects to apply, in this order. Controllers that watch certain namespaces get Roles in these."""
    name, namespace = installation.name, installation.namespace
    election = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    objects = [
        _object("v1", "ServiceAccount", name, namespace),
        *_role(f"{name}-election", namespace, [election], subject),
    ]
    everywhere = [declared for declared in classes if not declared.options.namespaces]
    limited = [declared for declared in classes if declared.options.namespaces]
    if everywhere:
        objects += _role(name, "", _rules(everywhere), subject)
    for target in sorted({target for declared in limited for target in declared.options.namespaces}):
        local = [declared for declared in limited if target in declared.options.namespaces]
        objects += _role(name, target, _rules(local), subject)
    cluster_rules = [rule for rule in _rules(limited, namespaced=False) if rule["resources"] != ["events"]]
    if cluster_rules:
        objects += _role(f"{name}-cluster", "", cluster_rules, subject)
    return [*objects, _deployment(installation)]


def _rules(classes: Iterable[type[Controller]], *, namespaced: bool | None = None) -> list[dict[str, Any]]:
    classes = [*classes]
    watches = [watch for declared in classes for watch in declared.watches]
    permissions = [permission for declared in classes for permission in declared.permissions]
    if namespaced is not None:
        watches = [watch for watch in watches if watch.resource.namespaced is namespaced]
        permissions = [permission for permission in permissions if permission.resource.namespaced is namespaced]
    return rules_for(watches, permissions)


def _role(name: str, namespace: str, rules: list[dict[str, Any]], subject: dict[str, str]) -> list[dict[str, Any]]:
    """Return a Role in a namespace, or a ClusterRole, and its binding."""
    kind = "Role" if namespace else "ClusterRole"
    reference = {"apiGroup": _RBAC, "kind": kind, "name": name}
    return [
        {**_object(f"{_RBAC}/v1", kind, name, namespace), "rules": rules},
        {**_object(f"{_RBAC}/v1", f"{kind}Binding", name, namespace), "roleRef": reference, "subjects": [subject]},
    ]


def _deployment(installation: Installation) -> dict[str, Any]:
    name, labels = installation.name, {"app.kubernetes.io/name": installation.name}
    probe = {"port": _PORT}
    container = {
        "name": "controllers",
        "image": installation.image,
        "command": ["kubeloop"],
        "args": [
            "run",
            f"--controllers={installation.arguments}",
            "--leader-elect",
            f"--leader-elect-resource-namespace={installation.namespace}",
            f"--leader-elect-resource-name={name}",
            "--bind-address=0.0.0.0",
            f"--endpoint-port={_PORT}",
            "--trace-journal=",
            "--log-format=json",
        ],
        "ports": [{"name": "endpoint", "containerPort": _PORT}],
        "livenessProbe": {"httpGet": {"path": "/healthz", **probe}},
        "readinessProbe": {"httpGet": {"path": "/readyz", **probe}},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "serviceAccountName": name,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {
        **_object("apps/v1", "Deployment", name, installation.namespace),
        "spec": {
            "replicas": installation.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _object(api_version: str, kind: str, name: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
