"""A Deployment, its pods with simulated usage, and its HorizontalPodAutoscaler in an API server in memory."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.resources import DEPLOYMENTS, HORIZONTAL_POD_AUTOSCALERS, PODS
from kubeloop.process.control_plane.controller_table import default_options
from support.apiserver.fake_apiserver import FakeApiServer

MERGE_PATCH = "application/merge-patch+json"
CPU_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}


def autoscaler_context(api: FakeApiServer, **options: Any) -> ControllerContext:
    """Return the context of the controller, with default options."""
    return replace(api.context, options={**default_options(), **options})


def add_running_pods(api: FakeApiServer, cpu_by_name: dict[str, str], **labels: str) -> None:
    """Create pods that have been ready for an hour. cpu_by_name: used CPU, "" if unknown; each requests 100m."""
    started = rfc3339(api.clock.now() - timedelta(hours=1))
    for name, cpu in cpu_by_name.items():
        container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
        annotations = {"kwok.x-k8s.io/usage-cpu": cpu} if cpu else {}
        body = {
            "metadata": {"name": name, "labels": labels or {"app": "web"}, "annotations": annotations},
            "spec": {"containers": [container]},
        }
        api.api.create(PODS.path("ns"), body)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": started}
        status = {"phase": "Running", "startTime": started, "conditions": [ready]}
        api.api.succeed("PATCH", PODS.path("ns", name, "status"), {"status": status}, content_type=MERGE_PATCH)


def add_target(api: FakeApiServer, replicas: int) -> None:
    """Create the Deployment "web"; nothing creates its pods."""
    api.add(DEPLOYMENTS, "web")
    set_replicas(api, replicas)


def set_replicas(api: FakeApiServer, replicas: int) -> None:
    body = {"spec": {"replicas": replicas}}
    api.api.succeed("PATCH", DEPLOYMENTS.path("ns", "web"), body, content_type=MERGE_PATCH)


def add_autoscaler(api: FakeApiServer, *metrics: dict[str, Any], name: str = "web", **spec: Any) -> None:
    """Create an autoscaler of the Deployment "web", by default for 50 % of the requested CPU."""
    body = {
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 10,
            "metrics": list(metrics) or [CPU_METRIC],
            **spec,
        },
    }
    api.api.create(HORIZONTAL_POD_AUTOSCALERS.path("ns"), body)


def replicas(api: FakeApiServer) -> int:
    count: int = api.store.get(DEPLOYMENTS, "ns", "web")["spec"]["replicas"]
    return count


def status(api: FakeApiServer, name: str = "web") -> dict[str, Any]:
    stored: dict[str, Any] = api.store.get(HORIZONTAL_POD_AUTOSCALERS, "ns", name)["status"]
    return stored


def conditions(api: FakeApiServer, name: str = "web") -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition, by type."""
    listed = status(api, name).get("conditions", ())
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in listed}


def reasons(api: FakeApiServer) -> list[str]:
    return [event.reason for event in api.context.events.events]
