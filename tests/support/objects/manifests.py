"""Manifests for tests of the whole pipeline."""

from __future__ import annotations

from typing import Any


def deployment(
    name: str = "web", *, replicas: int = 3, image: str = "app:1", cpu: str = "", **pod_spec: Any
) -> dict[str, Any]:
    """Return a Deployment of pods labelled app=`name` with one container. cpu: its request, "" for none."""
    container: dict[str, Any] = {"name": "main", "image": image}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **pod_spec}},
        },
    }


OBSERVED_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one", "generation": 2},
    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    "status": {
        "phase": "Running",
        "observedGeneration": 2,
        "conditions": [
            {"type": "Ready", "status": "True", "observedGeneration": 2},
            {"type": "Old", "status": "True", "observedGeneration": 1},
            {"type": "PodScheduled", "status": "False"},
        ],
    },
}
"""A pod with conditions of its present and of an earlier generation."""
