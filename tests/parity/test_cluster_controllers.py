"""Controllers of namespaces, nodes, budgets and volumes beside kube-controller-manager: the same objects and events.

Each runs alone on its own kube-apiserver, without scheduler and kubelets.
"""

from __future__ import annotations

import difflib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.cli_processes import Kubeloop
from support.real_apiserver import RealApiServer, needs_binaries, real_apiserver

JSON = dict[str, Any]
CONTROLLERS = (
    "serviceaccount,root-ca-cert-publisher,disruption,persistentvolume-binder,persistentvolume-expander,pvc-protection,"
    "pv-protection,ephemeral-volume,taint-eviction,podgc"
)
NS = "/api/v1/namespaces/x"
POD_SPEC: JSON = {"containers": [{"name": "main", "image": "app:1"}], "terminationGracePeriodSeconds": 5}
CLAIM_SPEC: JSON = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "",
    "resources": {"requests": {"storage": "1Gi"}},
}
VOLATILE = {
    "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "lastTransitionTime", "managedFields",
    "lastPhaseTransitionTime", "ca.crt", "generateName",
}  # fmt: skip
KINDS = {
    "serviceaccounts": f"{NS}/serviceaccounts",
    "configmaps": f"{NS}/configmaps",
    "budgets": "/apis/policy/v1/namespaces/x/poddisruptionbudgets",
    "claims": f"{NS}/persistentvolumeclaims",
    "volumes": "/api/v1/persistentvolumes",
    "pods": f"{NS}/pods",
}


def volume(name: str, size: str, **spec: Any) -> JSON:
    content = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/x"}}
    return {"metadata": {"name": name}, "spec": {**content, "persistentVolumeReclaimPolicy": "Retain", **spec}}


def create_growing_claims(server: RealApiServer) -> None:
    """Create bound claims that request more storage, of a host path and of a volume migrated to CSI."""
    storage_class = {"metadata": {"name": "grows"}, "provisioner": "example.com/x", "allowVolumeExpansion": True}
    server.request("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class)
    gold = {"volumeAttributesClassName": "gold"}
    before = {"volume.alpha.kubernetes.io/pre-resize-capacity": "500Mi"}
    csi = {"hostPath": None, "csi": {"driver": "example.com", "volumeHandle": "x"}}
    cases: tuple[tuple[str, JSON, JSON, JSON], ...] = (
        ("growing", {}, {}, {}),
        ("growing-csi", csi, gold, before),
        ("growing-ebs", {"hostPath": None, "awsElasticBlockStore": {"volumeID": "vol-1"}}, {}, {}),
    )
    for name, source, fields, marks in cases:
        spec = {"storageClassName": "grows", **fields}
        body = volume(f"{name}-disk", "1Gi", **spec, **source)
        body["metadata"]["annotations"] = marks
        server.request("POST", "/api/v1/persistentvolumes", body)
        claim = {"metadata": {"name": name}, "spec": {**CLAIM_SPEC, **spec, "volumeName": f"{name}-disk"}}
        server.request("POST", KINDS["claims"], claim)
        wait_bound(server, name)
        server.request(
            "PATCH",
            f"{KINDS['claims']}/{name}",
            {"spec": {"resources": {"requests": {"storage": "2Gi"}}}},
            content_type="application/merge-patch+json",
        )


def pod(name: str, **spec: Any) -> JSON:
    return {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {**POD_SPEC, **spec}}


def create(server: RealApiServer) -> None:
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
    taint = {"key": "maintenance", "effect": "NoExecute"}
    server.request("POST", "/api/v1/nodes", {"metadata": {"name": "tainted"}, "spec": {"taints": [taint]}})
    create_growing_claims(server)
    for body in (volume("large", "5Gi"), volume("small", "2Gi")):
        server.request("POST", "/api/v1/persistentvolumes", body)
    wait(lambda: all(it["status"]["phase"] in ("Available", "Bound") for it in items(server, "volumes")))
    for name in ("data", "data-unused"):
        server.request("POST", KINDS["claims"], {"metadata": {"name": name}, "spec": CLAIM_SPEC})
        wait_bound(server, name)
    missing_class = {**CLAIM_SPEC, "storageClassName": "missing"}
    server.request("POST", KINDS["claims"], {"metadata": {"name": "pending"}, "spec": missing_class})
    template = {"metadata": {"labels": {"a": "b"}}, "spec": missing_class}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
    server.request("POST", KINDS["pods"], pod("with-ephemeral-volume", volumes=[scratch]))
    server.request("POST", KINDS["pods"], pod("evicted", nodeName="tainted"))
    tolerations = [{"operator": "Exists"}]
    server.request("POST", KINDS["pods"], pod("tolerant", nodeName="tainted", tolerations=tolerations))
    server.request("POST", KINDS["pods"], pod("orphan", nodeName="missing", tolerations=tolerations))
    for name, spec in {"number": {"minAvailable": 1}, "share": {"maxUnavailable": "50%"}}.items():
        selector = {"matchLabels": {"app": "web" if name == "number" else "none"}}
        server.request("POST", KINDS["budgets"], {"metadata": {"name": name}, "spec": {**spec, "selector": selector}})
    server.request("DELETE", f"{KINDS['claims']}/data-unused")


def items(server: RealApiServer, kind: str) -> list[JSON]:
    listed: list[JSON] = server.request("GET", KINDS[kind])["items"]
    return listed


def wait(condition: Any, seconds: float = 150.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the controllers did not react in time"
        time.sleep(0.2)


def wait_bound(server: RealApiServer, claim: str) -> None:
    wait(lambda: server.request("GET", f"{KINDS['claims']}/{claim}")["status"]["phase"] == "Bound")


def complete(server: RealApiServer) -> bool:
    """Return True when the slowest controller, that of orphaned pods, and all others have worked."""
    names = {it["metadata"]["name"] for it in items(server, "pods")}
    claims = {it["metadata"]["name"]: it["status"]["phase"] for it in items(server, "claims")}
    volumes = {it["status"]["phase"] for it in items(server, "volumes")}
    budgets = items(server, "budgets")
    return (
        "orphan" not in names
        and {"pending", "with-ephemeral-volume-scratch"} <= claims.keys()
        and "data-unused" not in claims
        and sum(it["reason"] == "ExternalExpanding" for it in server.request("GET", f"{NS}/events")["items"]) >= 3
        and volumes == {"Bound", "Released"}
        and all(it.get("status", {}).get("observedGeneration") for it in budgets)
    )


def stable(value: Any) -> Any:
    """Return the value without fields that differ between two clusters."""
    if isinstance(value, dict):
        return {name: stable(item) for name, item in value.items() if name not in VOLATILE}
    return [stable(item) for item in value] if isinstance(value, list) else value


def state(server: RealApiServer) -> JSON:
    objects = {kind: sorted(stable(items(server, kind)), key=lambda it: it["metadata"]["name"]) for kind in KINDS}
    events = {
        (it["involvedObject"]["kind"], it["involvedObject"]["name"], it["reason"], it["message"], it["type"])
        for it in server.request("GET", f"{NS}/events")["items"]
    }
    return {**objects, "events": sorted(events)}


def run(server: RealApiServer) -> JSON:
    create(server)
    wait(lambda: complete(server))
    return state(server)


def run_kubernetes(folder: Path) -> JSON:
    with real_apiserver(folder) as server:
        kubernetes_names = CONTROLLERS.replace("pvc-", "persistentvolumeclaim-").replace("pv-", "persistentvolume-")
        names = [f"{name}-controller" for name in kubernetes_names.split(",")]
        renamed = {
            "root-ca-cert-publisher-controller": "root-ca-certificate-publisher-controller",
            "podgc-controller": "pod-garbage-collector-controller",
        }
        selected = ",".join(renamed.get(name, name) for name in names)
        root_ca = f"--root-ca-file={folder / 'certificates' / 'ca.crt'}"
        server.start_component("kube-controller-manager", f"--controllers={selected}", "--leader-elect=false", root_ca)
        return run(server)


def run_kubeloop(folder: Path) -> JSON:
    with (
        real_apiserver(folder) as server,
        Kubeloop(folder).running(
            "run", f"--kubeconfig={server.kubeconfig}", f"--controllers={CONTROLLERS}", "--trace-journal="
        ),
    ):
        return run(server)


def test_objects_and_events_match_kube_controller_manager(tmp_path):
    needs_binaries("kube-controller-manager")
    with ThreadPoolExecutor(2) as executor:
        kubernetes = executor.submit(run_kubernetes, tmp_path / "kubernetes")
        kubeloop = executor.submit(run_kubeloop, tmp_path / "kubeloop")
        real, ours = kubernetes.result(), kubeloop.result()
    lines = [json.dumps(it, indent=1, sort_keys=True).splitlines() for it in (real, ours)]
    report = "\n".join(difflib.unified_diff(*lines, "Kubernetes", "kubeloop", n=2))
    assert not report, report[:20_000]
