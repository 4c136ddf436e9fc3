"""Resource claim controller beside that of kube-controller-manager: the same claims, pods and events.

Each runs alone on its own kube-apiserver. The test allocates claims as a scheduler does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.comparison.controller_runs import check_same_results
from support.comparison.real_apiserver import RealApiServer, real_apiserver
from support.objects.resource_claims import ALLOCATION, FINALIZER, claim_spec, template_body
from support.objects.token_volumes import masked_token_volumes
from support.processes.cli_processes import Kubeloop

JSON = dict[str, Any]
PODS, EVENTS = "/api/v1/namespaces/ns/pods", "/api/v1/namespaces/ns/events"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaimtemplates"
MERGE = "application/merge-patch+json"
VOLATILE = {"uid", "resourceVersion", "creationTimestamp", "lastTransitionTime", "managedFields"}
SHARED = {"name": "gpu", "resourceClaimName": "shared"}


def items(server: RealApiServer, path: str) -> dict[str, JSON]:
    return {it["metadata"]["name"]: it for it in server.request("GET", path)["items"]}


def wait(condition: Callable[[], object], description: str) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, description
        time.sleep(0.2)


def create_pod(server: RealApiServer, name: str, *claims: JSON, **spec: Any) -> None:
    containers = [{"name": "main", "image": "app:1"}]
    spec = {"containers": containers, "resourceClaims": list(claims), "terminationGracePeriodSeconds": 0, **spec}
    server.request("POST", PODS, {"metadata": {"name": name}, "spec": spec})


def create_claim(server: RealApiServer, name: str) -> None:
    server.request("POST", CLAIMS, {"metadata": {"name": name, "finalizers": [FINALIZER]}, "spec": claim_spec()})
    server.request("PATCH", f"{CLAIMS}/{name}/status", {"status": {"allocation": ALLOCATION}}, content_type=MERGE)


def recorded_claims(server: RealApiServer, pod: str) -> dict[str, str]:
    statuses = items(server, PODS)[pod]["status"].get("resourceClaimStatuses") or ()
    return {entry["name"]: entry["resourceClaimName"] for entry in statuses}


def consumers(server: RealApiServer, claim: str) -> list[str]:
    reserved = items(server, CLAIMS)[claim].get("status", {}).get("reservedFor", ())
    return sorted(entry["name"] for entry in reserved)


def run(server: RealApiServer) -> JSON:
    """Run the scenario; return its observations and the objects and events at the end."""
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "ns"}})
    server.request("POST", TEMPLATES, template_body(labels={"a": "b"}, annotations={"c": "d"}))
    entries = [{"name": name, "resourceClaimTemplateName": "gpus"} for name in ("gpu", "nic")]
    create_pod(server, "templated", *entries)
    create_pod(server, "p" * 60, *entries[:1])
    create_pod(server, "without-template", {"name": "gpu", "resourceClaimTemplateName": "absent"})
    wait(lambda: len(recorded_claims(server, "templated")) == 2, "recorded claims")
    wait(lambda: recorded_claims(server, "p" * 60), "recorded claim of a long name")
    wait(lambda: items(server, EVENTS), "event")
    for name in ("shared", "unused"):
        create_claim(server, name)
    server.request("DELETE", f"{CLAIMS}/unused")
    create_pod(server, "first", SHARED, nodeName="n")
    create_pod(server, "second", SHARED, nodeName="n")
    observed = []
    wait(lambda: consumers(server, "shared") == ["first", "second"], "reservations")
    observed.append(stable(items(server, CLAIMS)["shared"]))
    # not by its end: kube-controller-manager then reserves and releases the claim for ever
    server.request("DELETE", f"{PODS}/first")
    wait(lambda: consumers(server, "shared") == ["second"], "released reservation")
    observed.append(stable(items(server, CLAIMS)["shared"]))
    server.request("DELETE", f"{PODS}/second")
    wait(lambda: not items(server, CLAIMS)["shared"]["metadata"].get("finalizers"), "deallocation")
    wait(lambda: "unused" not in items(server, CLAIMS), "deleted claim")
    return {"observed": observed, **state(server)}


def stable(value: Any) -> Any:
    """Return the value without fields that differ between two clusters, generated names and the order of lists."""
    if isinstance(value, dict):
        fields = {name: stable(item) for name, item in value.items() if name not in VOLATILE}
        if "generateName" in fields:
            del fields["name"]
        if "resourceClaimStatuses" in fields:
            for status in fields["resourceClaimStatuses"]:
                status["resourceClaimName"] = status["resourceClaimName"][:-5]
        return fields
    return sorted(map(stable, value), key=_text) if isinstance(value, list) else value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def state(server: RealApiServer) -> JSON:
    claims, pods = (stable(masked_token_volumes(list(items(server, path).values()))) for path in (CLAIMS, PODS))
    events = {
        (it["involvedObject"]["name"], it["reason"], it["message"], it["type"], it["source"]["component"])
        for it in items(server, EVENTS).values()
    }
    return {"claims": claims, "pods": pods, "events": sorted(events)}


def run_kubernetes(folder: Path) -> JSON:
    with real_apiserver(folder) as server:
        server.start_component(
            "kube-controller-manager", "--controllers=resourceclaim-controller", "--leader-elect=false"
        )
        return run(server)


def run_kubeloop(folder: Path) -> JSON:
    flags = ("--controllers=resourceclaim-controller", "--trace-journal=")
    with real_apiserver(folder) as server, Kubeloop(folder).running("run", f"--kubeconfig={server.kubeconfig}", *flags):
        return run(server)


def test_claims_and_events_match_kube_controller_manager(tmp_path):
    check_same_results(run_kubernetes, run_kubeloop, tmp_path)
