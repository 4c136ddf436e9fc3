"""HorizontalPodAutoscalers in virtual time: usage of simulated pods, metrics API, controller, rollout."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.testing.in_memory import memory_cluster
from support.apiserver.api_requests import InProcessApi

pytestmark = pytest.mark.virtual_time
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
# as `kubectl autoscale deployment web --min=2 --max=5 --cpu=60%` creates it
AUTOSCALER: dict[str, Any] = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 5,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
            }
        ],
    },
}


def deployment(usage: str) -> dict[str, Any]:
    """Return a Deployment of pods that request 100m of CPU and use `usage`."""
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}
    metadata = {"labels": {"app": "web"}, "annotations": {"kwok.x-k8s.io/usage-cpu": usage}}
    spec = {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": metadata, "spec": {"containers": [container]}},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def printed_columns(api: InProcessApi) -> list[Any]:
    """Return what `kubectl get hpa` prints, but for the age."""
    table = api.succeed("GET", AUTOSCALERS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    (row,) = table["rows"]
    columns: list[Any] = row["cells"][:-1]
    return columns


async def test_deployment_is_scaled_by_the_annotated_usage_of_its_pods(clock):
    async with memory_cluster(clock=clock, nodes=2) as cluster:
        api = InProcessApi(cluster.api)
        await cluster.apply(deployment("50m"))
        await cluster.wait_for("deployment/web", "complete")
        await cluster.apply(AUTOSCALER)
        await cluster.wait_for("hpa/web", "{.status.desiredReplicas}=2", timeout=120)
        assert printed_columns(api)[:2] == ["web", "Deployment/web"]

        await cluster.apply(deployment("180m"))
        await cluster.wait_for("hpa/web", "{.status.currentReplicas}=5", timeout=600)
        await cluster.wait_for("deployment/web", "complete")
        await cluster.wait_for("hpa/web", "{.status.currentMetrics[0].resource.current.averageValue}=180m", timeout=120)
        assert printed_columns(api) == ["web", "Deployment/web", "cpu: 180%/60%", "2", 5, 5]

        await cluster.apply(deployment("40m"))
        lowered_at = clock.now()
        await cluster.wait_for("deployment/web", "{.spec.replicas}=4", timeout=900)
        assert (clock.now() - lowered_at).total_seconds() > 240, "scaled down within the stabilization window"
        await cluster.wait_for("hpa/web", "{.status.currentReplicas}=2", timeout=3600)
        await cluster.wait_for("deployment/web", "complete")
        assert printed_columns(api) == ["web", "Deployment/web", "cpu: 40%/60%", "2", 5, 2]
