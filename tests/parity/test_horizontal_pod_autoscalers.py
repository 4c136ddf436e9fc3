"""HorizontalPodAutoscalers beside kube-controller-manager: the same statuses, replicas and events.

Each controller runs alone on its own kube-apiserver. PodMetrics are custom resources of the group metrics.k8s.io.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from support.comparison.controller_runs import check_same_results
from support.comparison.real_apiserver import RealApiServer, real_apiserver
from support.processes.cli_processes import Kubeloop

JSON = dict[str, Any]
NS = "/api/v1/namespaces/x"
DEPLOYMENTS = "/apis/apps/v1/namespaces/x/deployments"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/x/horizontalpodautoscalers"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/x/pods"
OPTIONS = ("--horizontal-pod-autoscaler-sync-period=2s", "--horizontal-pod-autoscaler-downscale-stabilization=4s")
LONG_AGO = "2020-01-01T00:00:00Z"
VOLATILE = {"lastTransitionTime", "lastScaleTime"}
CPU: JSON = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
MEMORY: JSON = {
    "type": "ContainerResource",
    "containerResource": {
        "name": "memory",
        "container": "main",
        "target": {"type": "AverageValue", "averageValue": "1Mi"},
    },
}
EXTERNAL: JSON = {
    "type": "External",
    "external": {
        "metric": {"name": "queue", "selector": {"matchLabels": {"q": "a"}}},
        "target": {"type": "AverageValue", "averageValue": "30"},
    },
}
OBJECT: JSON = {
    "type": "Object",
    "object": {
        "metric": {"name": "rate"},
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"},
        "target": {"type": "Value", "value": "2k"},
    },
}
OF_PODS: JSON = {
    "type": "Pods",
    "pods": {"metric": {"name": "rate"}, "target": {"type": "AverageValue", "averageValue": "1k"}},
}
ONE_POD = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1800}]}
# replicas, usage of each pod ("" for none), spec of the autoscaler
CASES: dict[str, tuple[int, tuple[str, ...], JSON]] = {
    "up": (2, ("90m", "100m"), {"metrics": [CPU]}),
    "down": (3, ("10m", "10m", "20m"), {"metrics": [CPU], "minReplicas": 2}),
    "memory": (1, ("10m",), {"metrics": [MEMORY]}),
    "missing": (2, ("90m", ""), {"metrics": [CPU]}),
    "policy": (2, ("90m", "100m"), {"metrics": [CPU], "behavior": {"scaleUp": ONE_POD}}),
    "tolerated": (1, ("60m",), {"metrics": [CPU], "behavior": {"scaleUp": {"tolerance": "0.5"}}}),
    "above": (9, (), {"metrics": [CPU]}),
    "zero": (0, (), {"metrics": [CPU]}),
    "no-usage": (1, ("",), {"metrics": [CPU]}),
    "unserved": (1, ("50m",), {"metrics": [EXTERNAL, OBJECT, OF_PODS]}),
    "partial": (1, ("100m",), {"metrics": [EXTERNAL, CPU]}),
}


def definition() -> JSON:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": schema}
    approval = {"api-approved.kubernetes.io": "unapproved, for this test"}
    return {
        "metadata": {"name": "pods.metrics.k8s.io", "annotations": approval},
        "spec": {
            "group": "metrics.k8s.io",
            "scope": "Namespaced",
            "names": {"plural": "pods", "kind": "PodMetrics"},
            "versions": [version],
        },
    }


def create(server: RealApiServer) -> None:
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
    created = server.request("POST", DEFINITIONS, definition())
    name = f"{DEFINITIONS}/{created['metadata']['name']}"
    wait(
        lambda: any(it["type"] == "Established" for it in server.request("GET", name)["status"].get("conditions") or ())
    )
    for case, (replicas, usages, spec) in CASES.items():
        labels = {"app": case}
        container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "4Mi"}}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        deployment = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        server.request("POST", DEPLOYMENTS, {"metadata": {"name": case}, "spec": deployment})
        for number, usage in enumerate(usages):
            create_pod(server, f"{case}-{number}", template, usage)
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": case}
        body = {"metadata": {"name": case}, "spec": {"scaleTargetRef": target, "maxReplicas": 5, **spec}}
        server.request("POST", AUTOSCALERS, body)
    missing = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nothing"}
    body = {"metadata": {"name": "no-target"}, "spec": {"scaleTargetRef": missing, "maxReplicas": 5}}
    server.request("POST", AUTOSCALERS, body)
    unknown = {"apiVersion": "example.com/v1", "kind": "Gizmo", "name": "nothing"}
    body = {"metadata": {"name": "no-kind"}, "spec": {"scaleTargetRef": unknown, "maxReplicas": 5}}
    server.request("POST", AUTOSCALERS, body)


def create_pod(server: RealApiServer, name: str, template: JSON, usage: str) -> None:
    """Create a pod that has been ready for long; usage: its CPU, "" for none."""
    body = {"metadata": {"name": name, **template["metadata"]}, "spec": template["spec"]}
    pod = server.request("POST", f"{NS}/pods", body)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}
    pod["status"] = {"phase": "Running", "startTime": LONG_AGO, "conditions": [ready]}
    server.request("PUT", f"{NS}/pods/{name}/status", pod)
    if usage:
        sample = {"timestamp": "2026-01-01T00:00:00Z", "window": "15s"}
        containers = [{"name": "main", "usage": {"cpu": usage, "memory": "3Mi"}}]
        metrics = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": body["metadata"]}
        server.request("POST", METRICS, {**metrics, **sample, "containers": containers})


def wait(condition: Any, seconds: float = 150.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the controller did not react in time"
        time.sleep(0.2)


def stable(value: Any) -> Any:
    """Return the value without fields that differ between two clusters."""
    if isinstance(value, dict):
        return {name: stable(item) for name, item in value.items() if name not in VOLATILE}
    return [stable(item) for item in value] if isinstance(value, list) else value


def state(server: RealApiServer) -> JSON:
    events = server.request("GET", f"{NS}/events")["items"]
    autoscalers = server.request("GET", AUTOSCALERS)["items"]
    deployments = server.request("GET", DEPLOYMENTS)["items"]
    return {
        "status": {it["metadata"]["name"]: stable(it["status"]) for it in autoscalers},
        "replicas": {it["metadata"]["name"]: it["spec"]["replicas"] for it in deployments},
        "events": sorted({(it["involvedObject"]["name"], it["type"], it["reason"], it["message"]) for it in events}),
    }


def settled(server: RealApiServer) -> JSON:
    """Return the state when it has not changed for some sync periods."""
    wait(lambda: all(it["status"].get("conditions") for it in server.request("GET", AUTOSCALERS)["items"]))
    states = [state(server)]
    while states[-5:].count(states[-1]) < 5:
        assert len(states) < 60, "the state changes all the time"
        time.sleep(2)
        states.append(state(server))
    return states[-1]


def run_kubernetes(folder: Path) -> JSON:
    with real_apiserver(folder) as server:
        create(server)
        controllers = "--controllers=horizontal-pod-autoscaler-controller"
        server.start_component("kube-controller-manager", controllers, "--leader-elect=false", *OPTIONS)
        return settled(server)


def run_kubeloop(folder: Path) -> JSON:
    with real_apiserver(folder) as server:
        create(server)
        arguments = (f"--kubeconfig={server.kubeconfig}", "--controllers=horizontalpodautoscaling", "--trace-journal=")
        with Kubeloop(folder).running("run", *arguments, *OPTIONS):
            return settled(server)


def test_statuses_replicas_and_events_match_kube_controller_manager(tmp_path):
    check_same_results(run_kubernetes, run_kubeloop, tmp_path)
