"""Controllers of namespaces, nodes, budgets, volumes, address ranges and roles beside kube-controller-manager.

The objects and events are the same. Each runs alone on its own kube-apiserver, without scheduler and kubelets.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kubeloop.process.control_plane.controller_table import CONTROLLERS_BY_NAME
from support.comparison.controller_runs import check_same_results
from support.comparison.kubernetes_controllers import KUBERNETES_CONTROLLERS
from support.comparison.real_apiserver import RealApiServer, find_binary, needs_binaries, real_apiserver
from support.objects.certificate_requests import signing_request
from support.objects.token_volumes import masked_token_volumes
from support.processes.cli_processes import Kubeloop

JSON = dict[str, Any]
CONTROLLERS = (
    "serviceaccount,root-ca-cert-publisher,disruption,persistentvolume-binder,persistentvolume-expander,pvc-protection,"
    "pv-protection,ephemeral-volume,taint-eviction,podgc,endpointslicemirroring,service-cidr,clusterrole-aggregation,"
    "volumeattributesclass-protection,csrapproving"
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
    "lastUpdateTime",
}  # fmt: skip
FLAGS = {
    "authorization-mode": "AlwaysAllow,RBAC",  # with RBAC, there are the ClusterRoles of a new cluster
}
KINDS = {
    "serviceaccounts": f"{NS}/serviceaccounts",
    "configmaps": f"{NS}/configmaps",
    "budgets": "/apis/policy/v1/namespaces/x/poddisruptionbudgets",
    "claims": f"{NS}/persistentvolumeclaims",
    "volumes": "/api/v1/persistentvolumes",
    "pods": f"{NS}/pods",
    "slices": "/apis/discovery.k8s.io/v1/namespaces/x/endpointslices",
    "ranges": "/apis/networking.k8s.io/v1/servicecidrs",
    "roles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "classes": "/apis/storage.k8s.io/v1/volumeattributesclasses",
    "requests": "/apis/certificates.k8s.io/v1/certificatesigningrequests",
}
REQUESTS = {"kubelet": signing_request(), "client": signing_request("admin")}
PORTS = [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP", "appProtocol": "x.example/dns"}]


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
    wait(lambda: items(server, "serviceaccounts"))  # the controllers under test create "default", which pods need
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
    create_attributes_classes(server)
    create_endpoints(server)
    create_ranges(server)
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    rules = [{"apiGroups": ["example.com"], "resources": ["crontabs"], "verbs": ["get"]}]
    server.request("POST", KINDS["roles"], {"metadata": {"name": "a-readers", "labels": labels}, "rules": rules})
    for name, request in REQUESTS.items():
        server.request("POST", KINDS["requests"], {**request, "metadata": {"name": name}})
    selectors = [{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}}, {"matchLabels": labels}]
    aggregation = {"aggregationRule": {"clusterRoleSelectors": selectors}}
    server.request("POST", KINDS["roles"], {"metadata": {"name": "all"}, **aggregation})


def create_attributes_classes(server: RealApiServer) -> None:
    """Create VolumeAttributesClasses, one of them used, and delete them."""
    for name in ("gold", "unused"):
        body = {"metadata": {"name": name}, "driverName": "csi.example.com", "parameters": {"iops": "1"}}
        server.request("POST", KINDS["classes"], body)
    source = {"csi": {"driver": "csi.example.com", "volumeHandle": "h"}, "hostPath": None}
    fields = {"storageClassName": "fast", "volumeAttributesClassName": "gold"}
    server.request("POST", KINDS["volumes"], volume("fast", "1Gi", **source, **fields))
    wait(lambda: server.request("GET", f"{KINDS['volumes']}/fast")["status"]["phase"] == "Available")
    server.request("POST", KINDS["claims"], {"metadata": {"name": "fast"}, "spec": {**CLAIM_SPEC, **fields}})
    wait(lambda: all(it["metadata"].get("finalizers") for it in items(server, "classes")))
    wait_bound(server, "fast")
    for name in ("gold", "unused"):
        server.request("DELETE", f"{KINDS['classes']}/{name}")


def create_endpoints(server: RealApiServer) -> None:
    """Create Endpoints of Services without and with selector, and such that are not mirrored."""
    addresses = [{"ip": "10.1.0.1", "hostname": "a"}, {"ip": "fd00::1"}, {"ip": "10.1.0.2"}]
    subsets = [{"addresses": addresses[:2], "notReadyAddresses": addresses[2:], "ports": PORTS}]
    many = [{"ip": f"10.2.{number // 250}.{number % 250 + 1}"} for number in range(1001)]
    metadata: dict[str, JSON] = {
        "plain": {"labels": {"team": "x"}, "annotations": {"note": "y"}},
        "skipped": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "lock": {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}},
        "selected": {},
        "many": {},
        "changed": {},
        "orphan": {},
    }
    for name, fields in metadata.items():
        selector = {"selector": {"app": "none"}} if name == "selected" else {}
        if name != "orphan":
            spec = {"ports": [{"port": 80}], **selector}
            server.request("POST", f"{NS}/services", {"metadata": {"name": name}, "spec": spec})
        listed = [{"addresses": many, "ports": PORTS[:1]}] if name == "many" else subsets
        server.request("POST", f"{NS}/endpoints", {"metadata": {"name": name, **fields}, "subsets": listed})
    wait(lambda: {"plain", "many", "changed"} <= mirrored(server).keys())
    path = f"{NS}/endpoints/changed"
    changed = [{"addresses": addresses[:1]}]
    server.request("PATCH", path, {"subsets": changed}, content_type="application/merge-patch+json")
    wait(lambda: mirrored(server)["changed"] == 1)


def mirrored(server: RealApiServer) -> Counter[str]:
    """Return the number of slices by Service."""
    return Counter(it["metadata"]["labels"]["kubernetes.io/service-name"] for it in items(server, "slices"))


def create_ranges(server: RealApiServer) -> None:
    """Create ServiceCIDRs, one of them used, and delete two."""
    for number, name in enumerate(("kept", "unused", "used")):
        server.request(
            "POST", KINDS["ranges"], {"metadata": {"name": name}, "spec": {"cidrs": [f"10.9.{number}.0/24"]}}
        )
    wait(lambda: all(it["metadata"].get("finalizers") for it in items(server, "ranges")))
    spec = {"ports": [{"port": 80}], "clusterIP": "10.9.2.9", "selector": {"app": "none"}}
    server.request("POST", f"{NS}/services", {"metadata": {"name": "in-used-range"}, "spec": spec})
    for name in ("unused", "used"):
        server.request("DELETE", f"{KINDS['ranges']}/{name}")


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
    ranges = {it["metadata"]["name"]: it["status"]["conditions"][0]["status"] for it in items(server, "ranges")}
    roles = {it["metadata"]["name"]: json.dumps(it["rules"]) for it in items(server, "roles")}
    return (
        "orphan" not in names
        and {"pending", "with-ephemeral-volume-scratch"} <= claims.keys()
        and "data-unused" not in claims
        and sum(it["reason"] == "ExternalExpanding" for it in server.request("GET", f"{NS}/events")["items"]) >= 3
        and volumes == {"Bound", "Released"}
        and all(it.get("status", {}).get("observedGeneration") for it in budgets)
        and ranges == {"kept": "True", "kubernetes": "True", "used": "False"}
        and all("crontabs" in roles[name] for name in ("admin", "edit", "view", "all"))
        and [it["metadata"]["name"] for it in items(server, "classes")] == ["gold"]
        and bool(server.request("GET", f"{KINDS['requests']}/kubelet")["status"].get("conditions"))
    )


def stable(value: Any) -> Any:
    """Return the value without fields that differ between two clusters."""
    if isinstance(value, dict):
        return {name: stable(item) for name, item in value.items() if name not in VOLATILE}
    return [stable(item) for item in value] if isinstance(value, list) else value


def state(server: RealApiServer) -> JSON:
    objects = {
        kind: sorted(stable(masked_token_volumes(items(server, kind))), key=lambda it: it["metadata"]["name"])
        for kind in KINDS
    }
    for endpoint_slice in objects["slices"]:
        endpoint_slice["metadata"].pop("name")
        for owner in endpoint_slice["metadata"]["ownerReferences"]:
            owner.pop("uid", None)
        endpoint_slice["endpoints"].sort(key=lambda it: it["addresses"])
        if endpoint_slice["metadata"]["labels"]["kubernetes.io/service-name"] == "many":
            assert len(endpoint_slice.pop("endpoints")) == 1000  # any of them
    objects["slices"].sort(key=lambda it: json.dumps(it, sort_keys=True))
    events = {
        (it["involvedObject"]["kind"], it["involvedObject"]["name"], it["reason"], it["message"], it["type"])
        for it in server.request("GET", f"{NS}/events")["items"]
        if "component" in it["source"]  # not the API server's repair of Service addresses
    }
    return {**objects, "events": sorted(events)}


def run(server: RealApiServer) -> JSON:
    create(server)
    wait(lambda: complete(server))
    return state(server)


def run_kubernetes(folder: Path) -> JSON:
    with real_apiserver(folder, FLAGS, accounts=False) as server:
        selected = ",".join(CONTROLLERS_BY_NAME[name].kubernetes_name for name in CONTROLLERS.split(","))
        root_ca = f"--root-ca-file={folder / 'certificates' / 'ca.crt'}"
        server.start_component("kube-controller-manager", f"--controllers={selected}", "--leader-elect=false", root_ca)
        return run(server)


def run_kubeloop(folder: Path) -> JSON:
    with (
        real_apiserver(folder, FLAGS, accounts=False) as server,
        Kubeloop(folder).running(
            "run", f"--kubeconfig={server.kubeconfig}", f"--controllers={CONTROLLERS}", "--trace-journal="
        ),
    ):
        return run(server)


def test_recorded_list_of_controllers_is_that_of_the_binary():
    needs_binaries("kube-controller-manager")
    binary = find_binary("kube-controller-manager")
    assert binary is not None
    help_text = subprocess.run([binary, "--help"], check=True, capture_output=True, text=True).stdout
    match = re.search(r"All controllers: (.*)", help_text)
    assert match is not None
    others = {"service-ca-certificate-publisher-controller"}  # of OpenShift's builds
    assert [name for name in match[1].split(", ") if name not in others] == [*KUBERNETES_CONTROLLERS]


def test_objects_and_events_match_kube_controller_manager(tmp_path):
    check_same_results(run_kubernetes, run_kubeloop, tmp_path)
