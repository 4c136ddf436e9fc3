"""Scenarios of Services, budgets and autoscalers."""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.kube.objects.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    HORIZONTAL_POD_AUTOSCALERS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
)
from support.faults.cluster import Cluster
from support.faults.objects import JSON, is_ready, manifest, name_of
from support.faults.scenario import UNTIL_SETTLED, Scenario, Step, create
from support.faults.scenarios.workloads import DEPLOYMENT, deployment


def _service(**selector: str) -> JSON:
    return manifest(SERVICES, "web", spec={"selector": selector, "ports": [{"port": 80}]})


def _endpoints(cluster: Cluster) -> list[str]:
    """Endpoints and EndpointSlices list the ready pods of the Service, each once."""
    service = cluster.get(SERVICES, "web")
    expected = sorted(
        pod["status"]["podIP"]
        for pod in (cluster.pods_of(service["spec"]["selector"]["app"]) if service is not None else ())
        if is_ready(pod)
    )
    slices = cluster.all(ENDPOINT_SLICES, lambda obj: _is_of_web(obj["metadata"].get("labels", {})))
    in_slices = sorted(
        address
        for piece in slices
        for endpoint in piece.get("endpoints") or ()
        if endpoint["conditions"]["ready"]
        for address in endpoint["addresses"]
    )
    subsets = (cluster.get(ENDPOINTS, "web") or {}).get("subsets", ())
    in_subsets = sorted(address["ip"] for subset in subsets for address in subset.get("addresses", ()))
    problems = [] if in_slices == expected else [f"EndpointSlices list {in_slices} of {expected}"]
    return problems + ([] if in_subsets == expected else [f"Endpoints list {in_subsets} of {expected}"])


def _is_of_web(labels: Mapping[str, str]) -> bool:
    return labels.get("kubernetes.io/service-name") == "web"


def _mirrored(cluster: Cluster) -> list[str]:
    """EndpointSlices list the addresses of the Endpoints, each once, as long as the Service has no selector."""
    service, endpoints = cluster.get(SERVICES, "web"), cluster.get(ENDPOINTS, "web")
    has_selector = service is None or bool(service["spec"].get("selector"))
    subsets = [] if has_selector or endpoints is None else endpoints.get("subsets") or []
    expected = sorted(address["ip"] for subset in subsets for address in subset.get("addresses", ()))
    slices = cluster.all(ENDPOINT_SLICES, lambda obj: _is_of_web(obj["metadata"].get("labels", {})))
    listed = sorted(it["addresses"][0] for piece in slices for it in piece.get("endpoints") or ())
    return [] if listed == expected else [f"EndpointSlices list {listed} of {expected}"]


def _own_endpoints(*addresses: str, port: int = 80) -> JSON:
    subset = {"addresses": [{"ip": address} for address in addresses], "ports": [{"port": port}]}
    return manifest(ENDPOINTS, "web", subsets=[subset])


def _budget_status(cluster: Cluster) -> list[str]:
    budget = cluster.get(POD_DISRUPTION_BUDGETS, "web")
    if budget is None:
        return []
    healthy = sum(map(is_ready, cluster.pods_of("web")))
    status = budget.get("status", {})
    expected = {
        "currentHealthy": healthy,
        "desiredHealthy": budget["spec"]["minAvailable"],
        "expectedPods": sum(spec["spec"]["replicas"] for spec in cluster.all(DEPLOYMENTS)),
        "disruptionsAllowed": max(0, healthy - budget["spec"]["minAvailable"]),
        "observedGeneration": budget["metadata"]["generation"],
    }
    if {key: status.get(key) for key in expected} != expected or status.get("disruptedPods"):
        return [f"the budget's status is {status} instead of {expected}"]
    return []


def _evict(cluster: Cluster) -> None:
    """Evict pods until the budget refuses."""
    for pod in cluster.pods_of("web"):
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name_of(pod)}}
        status, _ = cluster.user("POST", PODS.path("default", name_of(pod), "eviction"), body)
        if status == 429:
            return


def _autoscaler() -> JSON:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5, "metrics": [metric]}
    return manifest(HORIZONTAL_POD_AUTOSCALERS, "web", spec=spec)


def _busy_deployment() -> JSON:
    body = deployment("app:1", replicas=2)
    body["spec"]["template"]["metadata"]["annotations"] = {"kwok.x-k8s.io/usage-cpu": "90m"}
    del body["spec"]["replicas"]
    return body


def _scaled(cluster: Cluster) -> list[str]:
    if cluster.get(HORIZONTAL_POD_AUTOSCALERS, "web") is None:
        return []
    web = cluster.get(DEPLOYMENTS, "web")
    return [] if web is None or web["spec"]["replicas"] == 5 else [f"{web['spec']['replicas']} replicas instead of 5"]


SCENARIOS = (
    Scenario(
        "endpoints",
        (*DEPLOYMENT, "endpoint", "endpointslice"),
        (
            Step("create a Service and a Deployment", create(_service(app="web"), deployment("app:1", replicas=3))),
            Step("apply app:2", create(deployment("app:2", replicas=3)), UNTIL_SETTLED),
            Step("scale to 1", create(deployment("app:2", replicas=1)), 1.0),
        ),
        exact=(),
        desired=_endpoints,
    ),
    Scenario(
        "mirrored endpoints",
        ("endpointslicemirroring",),
        (
            Step("create a Service without selector", create(_service(), _own_endpoints("10.1.0.1", "10.1.0.2"))),
            Step("change an address", create(_own_endpoints("10.1.0.1", "10.1.0.3")), 1.0),
            Step("change the port", create(_own_endpoints("10.1.0.1", port=81)), UNTIL_SETTLED),
            Step("add a selector", create(_service(app="web")), UNTIL_SETTLED),
        ),
        exact=(),
        desired=_mirrored,
    ),
    Scenario(
        "disruption budget",
        (*DEPLOYMENT, "disruption"),
        (
            Step(
                "create a budget and a Deployment",
                create(
                    manifest(
                        POD_DISRUPTION_BUDGETS,
                        "web",
                        spec={"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 2},
                    ),
                    deployment("app:1", replicas=3),
                ),
            ),
            Step("evict pods", _evict, UNTIL_SETTLED),
        ),
        exact=(),
        desired=_budget_status,
    ),
    Scenario(
        "autoscaler",
        (*DEPLOYMENT, "horizontalpodautoscaling"),
        (
            Step("create a busy Deployment", create(_busy_deployment())),
            Step("create an autoscaler", create(_autoscaler()), 2.0),
        ),
        exact=(),
        desired=_scaled,
        serves_metrics=True,
    ),
)
