"""The permissions of deploy/controllers.yaml: every controller can work with them, and each of them is needed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import yaml

from support.audited_permissions import AUDIT_POLICY, Permission, audited_permissions, granted_permissions
from support.cli_processes import ROOT, Kubeloop
from support.fake_kubelet import fake_kubelet, make_node
from support.real_apiserver import RealApiServer, needs_binaries, real_apiserver

JSON = dict[str, Any]
ACCOUNT = "system:serviceaccount:kube-system:kubeloop"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
}
CORE, APPS, BATCH = "/api/v1/namespaces/x", "/apis/apps/v1/namespaces/x", "/apis/batch/v1/namespaces/x"
CONTAINERS = [{"name": "main", "image": "app:1"}]
SELECTOR = {"matchLabels": {"app": "web"}}
TEMPLATE: JSON = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": CONTAINERS}}
CLAIM: JSON = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "",
    "resources": {"requests": {"storage": "1Gi"}},
}
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"

# Permissions of the role that the scenario does not use, with the situation that needs them.
RARELY_USED: dict[Permission, str] = {
    ("batch", "jobs", "create"): "a CronJob at a full minute",
    ("batch", "cronjobs", "get"): "uncached read of a CronJob whose status write conflicted",
    ("batch", "cronjobs/status", "patch"): "a CronJob at a full minute",
    ("batch", "jobs", "patch"): "adoption of a Job",
    ("apps", "statefulsets", "get"): "uncached read before pods are adopted",
    ("apps", "daemonsets", "get"): "uncached read before pods are adopted",
    ("apps", "controllerrevisions", "get"): "a revision whose name is taken",
    ("apps", "controllerrevisions", "patch"): "a rollback makes a revision the newest",
    ("apps", "controllerrevisions", "delete"): "more revisions than the history limit",
    ("discovery.k8s.io", "endpointslices", "delete"): "a Service that loses an address family or most endpoints",
    ("custom.metrics.k8s.io", "*", "get"): "metrics of type Pods and Object",
    ("custom.metrics.k8s.io", "*", "list"): "metrics of type Pods and Object",
    ("external.metrics.k8s.io", "*", "get"): "metrics of type External",
    ("external.metrics.k8s.io", "*", "list"): "metrics of type External",
    ("", "nodes", "get"): "a write that conflicted",
    ("", "persistentvolumeclaims", "get"): "a claim that the cache does not show",
    ("", "configmaps", "patch"): "a changed ConfigMap kube-root-ca.crt",
}


def covers(granted: Permission, used: Permission) -> bool:
    """Return True if a rule with wildcards grants what was used."""
    group, resource, verb = granted
    subresource = resource.removeprefix("*") if resource.startswith("*/") else None
    matches_resource = resource in ("*", used[1]) or (subresource is not None and used[1].endswith(subresource))
    return group in ("*", used[0]) and matches_resource and verb == used[2]


def wait(condition: Callable[[], object], description: str) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, description
        time.sleep(0.2)


class Scenario:
    """User of the cluster, and kubelet of the pods of a Job."""

    def __init__(self, server: RealApiServer) -> None:
        self.server = server

    def create(self, path: str, name: str, **fields: Any) -> None:
        self.server.request("POST", path, {"metadata": {"name": name}, **fields})

    def items(self, path: str) -> dict[str, JSON]:
        return {it["metadata"]["name"]: it for it in self.server.request("GET", path)["items"]}

    def run(self) -> None:
        make_node(self.server, "n", labels={"kubernetes.io/os": "linux"})
        make_node(self.server, "tainted", taints=[{"key": "maintenance", "effect": "NoExecute"}])
        self.create("/api/v1/nodes", "silent")
        self.create("/api/v1/namespaces", "x")
        wait(lambda: "default" in self.items(f"{CORE}/serviceaccounts"), "ServiceAccount")
        self._volumes()
        self._workloads()
        self.create(f"{CORE}/services", "web", spec={"selector": {"app": "web"}, "ports": [{"port": 80}]})
        self.create("/apis/policy/v1/namespaces/x/poddisruptionbudgets", "web", spec={"selector": SELECTOR})
        self._autoscalers()
        spec = {"nodeName": "tainted", "containers": CONTAINERS, "terminationGracePeriodSeconds": 0}
        self.create(f"{CORE}/pods", "evicted", spec=spec)
        end = time.monotonic() + 60
        while unfinished := self._unfinished():
            assert time.monotonic() < end, unfinished
            time.sleep(0.2)
        self.server.request("DELETE", f"{CORE}/services/web")
        wait(lambda: "web" not in self.items(f"{CORE}/endpoints"), "deleted Endpoints")

    def _volumes(self) -> None:
        for name in ("first", "second", "unused"):
            spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/tmp/x"}}
            self.create("/api/v1/persistentvolumes", name, spec=spec)
        self.create(f"{CORE}/persistentvolumeclaims", "deleted", spec={**CLAIM, "storageClassName": "missing"})
        claim = {"metadata": {}, "spec": CLAIM}
        volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": claim}}
        self.create(f"{CORE}/pods", "scratch", spec={"containers": CONTAINERS, "volumes": [volume]})

    def _workloads(self) -> None:
        claims = [{"metadata": {"name": "data"}, "spec": CLAIM}]
        spec = {"selector": SELECTOR, "template": TEMPLATE}
        self.create(f"{APPS}/statefulsets", "db", spec={**spec, "serviceName": "web", "volumeClaimTemplates": claims})
        self.create(f"{APPS}/daemonsets", "agent", spec=spec)
        self.create(f"{APPS}/deployments", "web", spec={**spec, "replicas": 3})
        template = {"spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}
        self.create(f"{BATCH}/jobs", "once", spec={"template": template, "ttlSecondsAfterFinished": 0})
        job = {"spec": {"template": template}}
        self.create(f"{BATCH}/cronjobs", "yearly", spec={"schedule": "0 0 1 1 *", "jobTemplate": job})

    def _autoscalers(self) -> None:
        for name, replicas in {"above-maximum": 2, "by-metrics": 9}.items():
            target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
            if name == "by-metrics":
                target = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}
            spec = {"scaleTargetRef": target, "maxReplicas": replicas}
            self.create("/apis/autoscaling/v2/namespaces/x/horizontalpodautoscalers", name, spec=spec)

    def _unfinished(self) -> list[str]:
        """End the pod of the Job and delete volumes when they exist. Return what is not done yet."""
        pods, claims = self.items(f"{CORE}/pods"), self.items(f"{CORE}/persistentvolumeclaims")
        for name in pods:
            if name.startswith("once-") and pods[name]["status"]["phase"] == "Running":
                status = {"status": {"phase": "Succeeded"}}
                self.server.request("PATCH", f"{CORE}/pods/{name}/status", status, content_type=MERGE)
        for path, name in ((f"{CORE}/persistentvolumeclaims", "deleted"), ("/api/v1/persistentvolumes", "unused")):
            obj = self.items(path).get(name)
            if obj is not None and obj["metadata"].get("finalizers") and not obj["metadata"].get("deletionTimestamp"):
                self.server.request("DELETE", f"{path}/{name}")
        jobs = self.items(f"{BATCH}/jobs")
        silent = self.server.request("GET", "/api/v1/nodes/silent")
        done = {
            "eviction": "evicted" not in pods,
            "deleted claim": "deleted" not in claims,
            "deleted volume": "unused" not in self.items("/api/v1/persistentvolumes"),
            "ephemeral volume": claims.get("scratch-scratch", {}).get("status", {}).get("phase") == "Bound",
            "claim of StatefulSet": claims.get("data-db-0", {}).get("status", {}).get("phase") == "Bound",
            "expired Job": "once" not in jobs or "deletionTimestamp" in jobs["once"]["metadata"],
            "scaled Deployment": self.items(f"{APPS}/deployments")["web"]["spec"]["replicas"] == 2,
            "lost node": any(it["type"] == "Ready" for it in silent["status"].get("conditions", ())),
            "root CA": "kube-root-ca.crt" in self.items(f"{CORE}/configmaps"),
            "DaemonSet": "agent" in {name.partition("-")[0] for name in pods},
        }
        return [name for name, is_done in done.items() if not is_done]


def test_role_of_the_controllers_grants_exactly_the_needed_permissions(tmp_path):
    needs_binaries()
    policy, log = tmp_path / "policy.json", tmp_path / "audit.log"
    policy.write_text(json.dumps(AUDIT_POLICY))
    flags = {
        "authorization-mode": "RBAC",
        "audit-policy-file": str(policy),
        "audit-log-path": str(log),
        "enable-admission-plugins": "OwnerReferencesPermissionEnforcement",
        "feature-gates": "WatchList=false",  # so that informers use list requests, as with servers before v1.32
    }
    documents = [
        document
        for name in ("kubeloop.yaml", "controllers.yaml")
        for document in yaml.safe_load_all((ROOT / "deploy" / name).read_text())
        if document["kind"] in PATHS and document["metadata"]["name"] != "kubeloop-all-resources"
    ]
    with real_apiserver(tmp_path / "server", flags) as server, fake_kubelet(server):
        for document in documents:
            server.request("POST", PATHS[document["kind"]], document)
        token = server.request(
            "POST",
            f"{PATHS['ServiceAccount']}/kubeloop/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}},
        )["status"]["token"]
        arguments = (
            f"--kubeconfig={server.kubeconfig_of('kubeloop', {'token': token})}",
            "--controllers=*,-garbagecollector,-namespace,-resourcequota",
            "--node-monitor-period=1s",
            "--node-startup-grace-period=1s",
            "--node-monitor-grace-period=10m",
            "--horizontal-pod-autoscaler-sync-period=1s",
            "--trace-journal=",
        )
        with Kubeloop(tmp_path).running("run", *arguments):
            Scenario(server).run()
        used, refused = audited_permissions(log, ACCOUNT)
    assert not refused
    role = next(it["rules"] for it in documents if it["metadata"]["name"] == "kubeloop-controllers" and "rules" in it)
    granted = granted_permissions(role)
    unused = {it for it in granted if not any(covers(it, other) for other in used)}
    for_admission = {it for it in granted if it[1].endswith(("/finalizers", "/restricted"))}  # checked by OpenShift
    assert sorted(unused - for_admission - {*RARELY_USED}) == []
    assert sorted({*RARELY_USED} - granted) == []
