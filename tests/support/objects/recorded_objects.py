"""Objects as an API server sends them, for tests of recordings."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]


def uid_of(name: str) -> str:
    """Return the UID of the object of a name."""
    return f"{sum(name.encode()):08x}-0000"


def node(name: str, **status: Any) -> JSON:
    """Return a ready Node with 4 CPUs."""
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    conditions = [
        {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "ok",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z",
        }
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": uid_of(name),
            "resourceVersion": "1",
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "zone-a"},
        },
        "spec": {"providerID": f"cloud://{name}"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions, **status},
    }


def pod(name: str, node_name: str = "", *, owner: JSON | None = None, phase: str = "Pending") -> JSON:
    """Return a Pod in the namespace shop. owner: a reference to its controller."""
    spec: JSON = {"containers": [container()], "schedulerName": "default-scheduler"}
    if node_name:
        spec["nodeName"] = node_name
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": uid_of(name),
            "resourceVersion": "7",
            "labels": {"app": "web"},
            "annotations": {"example.com/note": "internal", "kubeloop.dev/run-seconds": "5"},
            "managedFields": [{"manager": "kubectl"}],
            **({"ownerReferences": [owner]} if owner else {}),
        },
        "spec": spec,
        "status": {"phase": phase, "conditions": [{"type": "PodScheduled", "status": "True", "message": "secret"}]},
    }


def container(**changes: Any) -> JSON:
    """Return a container with all that a recording leaves out."""
    return {
        "name": "app",
        "image": "registry.example.com/shop/web:1.4",
        "command": ["/bin/web", "--token=hunter2"],
        "env": [{"name": "PASSWORD", "value": "hunter2"}],
        "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}},
        "readinessProbe": {"exec": {"command": ["check", "--token=hunter2"]}, "periodSeconds": 5},
        **changes,
    }


def deployment(name: str, *, replicas: int = 2, **container_changes: Any) -> JSON:
    """Return a Deployment in the namespace shop."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "uid": uid_of(name), "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": {"checksum/config": "0123456789"}},
                "spec": {"containers": [container(**container_changes)]},
            },
        },
    }
