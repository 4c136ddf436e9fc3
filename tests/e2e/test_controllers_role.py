"""The permissions of deploy/control-plane: every controller can work with them, and each of them is needed.

garbagecollector, namespace and resourcequota run with the role of all resources, the others without it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.comparison.audited_permissions import AUDIT_POLICY, Permission, audited_permissions, granted_permissions
from support.comparison.fake_kubelet import fake_kubelet, make_node
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.objects.certificate_requests import signing_request
from support.processes.cli_processes import ROOT, Kubeloop

JSON = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {  # kinds of deploy/ that concern permissions
    "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
}
DOCUMENTS: list[JSON] = [
    document
    for name in ("scheduler/kubeloop.yaml", "control-plane/controllers.yaml")
    for document in yaml.safe_load_all((ROOT / "deploy" / name).read_text())
    if document["kind"] in PATHS
]
CORE, APPS, BATCH = "/api/v1/namespaces/x", "/apis/apps/v1/namespaces/x", "/apis/batch/v1/namespaces/x"
DEVICES = "/apis/resource.k8s.io/v1/namespaces/x"
RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
ADMISSION_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
RANGES = "/apis/networking.k8s.io/v1/servicecidrs"
CLASSES = "/apis/storage.k8s.io/v1/volumeattributesclasses"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/x/endpointslices"
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
    ("", "endpoints", "get"): "Endpoints of a deleted Service that the cache does not show",
    ("", "endpoints", "delete"): "Endpoints of a deleted Service, unless the API server has deleted them before",
    ("", "nodes", "get"): "a write that conflicted",
    ("", "persistentvolumeclaims", "get"): "a claim that the cache does not show",
    ("", "configmaps", "patch"): "a changed ConfigMap kube-root-ca.crt",
    ("rbac.authorization.k8s.io", "clusterroles", "escalate"): "checked with the patch of an aggregated ClusterRole",
    ("certificates.k8s.io", "signers", "approve"): "checked with the approval of a request",
    ("certificates.k8s.io", "signers", "sign"): "checked with the certificate of a request",
    ("certificates.k8s.io", "certificatesigningrequests", "delete"): "a request that is an hour old",
    ("", "serviceaccounts", "patch"): "a deleted token Secret that its account lists",
    **dict.fromkeys(
        (
            ("storagemigration.k8s.io", "storageversionmigrations", "list"),
            ("storagemigration.k8s.io", "storageversionmigrations", "watch"),
            ("storagemigration.k8s.io", "storageversionmigrations/status", "patch"),
            ("apiextensions.k8s.io", "customresourcedefinitions", "get"),
            ("apiextensions.k8s.io", "customresourcedefinitions/status", "patch"),
        ),
        "feature gate StorageVersionMigrator",
    ),
    **{
        ("scheduling.k8s.io", resource, verb): "feature gates of gang scheduling"
        for resource, verbs in (
            ("workloads", ("list", "watch", "create")),
            ("podgroups", ("get", "list", "watch", "create", "patch")),
            ("podgroups/status", ("patch",)),
        )
        for verb in verbs
    },
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
        self._tokens()
        self._volumes()
        self._policy()
        self._expansion()
        self._devices()
        self._workloads()
        self.create(f"{CORE}/services", "web", spec={"selector": {"app": "web"}, "ports": [{"port": 80}]})
        self.create(f"{CORE}/services", "own-endpoints", spec={"ports": [{"port": 80}]})
        self.create(f"{CORE}/endpoints", "own-endpoints", subsets=[{"addresses": [{"ip": "10.1.0.1"}]}])
        self._cluster_objects()
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

    def _tokens(self) -> None:
        for name, account in (("token", "default"), ("token-of-nobody", "nobody")):
            metadata = {"name": name, "annotations": {"kubernetes.io/service-account.name": account}}
            body = {"metadata": metadata, "type": "kubernetes.io/service-account-token"}
            self.server.request("POST", f"{CORE}/secrets", body)

    def _cluster_objects(self) -> None:
        self.create(RANGES, "more", spec={"cidrs": ["10.9.0.0/24"]})
        self.create(CLASSES, "gold", driverName="csi.example.com", parameters={"iops": "1"})
        self.server.request("DELETE", f"{CLASSES}/gold")
        self.server.request("POST", REQUESTS, signing_request())

    def _volumes(self) -> None:
        for name in ("first", "second", "unused"):
            spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/tmp/x"}}
            self.create("/api/v1/persistentvolumes", name, spec=spec)
        self.create(f"{CORE}/persistentvolumeclaims", "deleted", spec={**CLAIM, "storageClassName": "missing"})
        claim = {"metadata": {}, "spec": CLAIM}
        volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": claim}}
        self.create(f"{CORE}/pods", "scratch", spec={"containers": CONTAINERS, "volumes": [volume]})

    def _policy(self) -> None:
        rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]}
        spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "object.x == 1"}]}
        self.create(ADMISSION_POLICIES, "checked", spec=spec)

    def _expansion(self) -> None:
        """Let the claim "grows", of a volume migrated to CSI, request more storage."""
        storage_class = {"provisioner": "example.com/x", "allowVolumeExpansion": True}
        self.create("/apis/storage.k8s.io/v1/storageclasses", "grows", **storage_class)
        common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "grows"}
        spec = {**common, "capacity": {"storage": "1Gi"}, "awsElasticBlockStore": {"volumeID": "vol-1"}}
        self.create("/api/v1/persistentvolumes", "grows", spec=spec)
        path = f"{CORE}/persistentvolumeclaims"
        self.create(path, "grows", spec={**CLAIM, **common, "volumeName": "grows"})
        wait(lambda: self.items(path)["grows"]["status"]["phase"] == "Bound", "bound claim")
        request = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        self.server.request("PATCH", f"{path}/grows", request, content_type=MERGE)

    def _devices(self) -> None:
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "missing"}}]
        self.create(f"{DEVICES}/resourceclaimtemplates", "gpus", spec={"spec": {"devices": {"requests": requests}}})
        entry = {"name": "gpu", "resourceClaimTemplateName": "gpus"}
        self.create(f"{CORE}/pods", "claiming", spec={"containers": CONTAINERS, "resourceClaims": [entry]})
        spec = {"taint": {"key": "example.com/broken", "effect": "NoSchedule"}}
        self.create(RULES, "broken", spec=spec)

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
        """End the pods of the Job and with a claim, and delete volumes when they exist. Return what is not done yet."""
        pods, claims = self.items(f"{CORE}/pods"), self.items(f"{CORE}/persistentvolumeclaims")
        for name, pod in pods.items():
            is_running = name.startswith("once-") and pod["status"]["phase"] == "Running"
            if is_running or (pod["status"].get("resourceClaimStatuses") and pod["status"]["phase"] == "Pending"):
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
            "status of a DeviceTaintRule": bool(self.items(RULES)["broken"].get("status")),
            "claim of a finished pod": pods["claiming"]["status"]["phase"] == "Succeeded"
            and not self.items(f"{DEVICES}/resourceclaims"),
            "expired Job": "once" not in jobs or "deletionTimestamp" in jobs["once"]["metadata"],
            "scaled Deployment": self.items(f"{APPS}/deployments")["web"]["spec"]["replicas"] == 2,
            "lost node": any(it["type"] == "Ready" for it in silent["status"].get("conditions", ())),
            "root CA": "kube-root-ca.crt" in self.items(f"{CORE}/configmaps"),
            "token": "data" in self.items(f"{CORE}/secrets")["token"],
            "token of a missing account": "token-of-nobody" not in self.items(f"{CORE}/secrets"),
            "type checking": bool(self.items(ADMISSION_POLICIES)["checked"]["status"].get("typeChecking")),
            "resizer": "volume.kubernetes.io/storage-resizer" in claims["grows"]["metadata"]["annotations"],
            "range": bool(self.items(RANGES)["more"].get("status")),
            "attributes class": "gold" not in self.items(CLASSES),
            "certificate request": bool(self.items(REQUESTS)["csr"].get("status")),
            "role": bool(self.items(f"{RBAC}/clusterroles")["view"]["rules"]),
            "mirrored Endpoints": "own-endpoints"
            in {it["metadata"]["labels"]["kubernetes.io/service-name"] for it in self.items(SLICES).values()},
            "DaemonSet": "agent" in {name.partition("-")[0] for name in pods},
        }
        return [name for name, is_done in done.items() if not is_done]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    """A kube-apiserver with RBAC, an audit log, and the accounts, roles and bindings of deploy/.

    The controllers under test create the accounts "default".
    """
    needs_binaries()
    folder = tmp_path_factory.mktemp("role")
    policy = folder / "policy.json"
    policy.write_text(json.dumps(AUDIT_POLICY))
    flags = {
        "authorization-mode": "RBAC",
        "audit-policy-file": str(policy),
        "audit-log-path": str(folder / "audit.log"),
        "enable-admission-plugins": "OwnerReferencesPermissionEnforcement",
        # without WatchList, informers use list requests, as with servers before v1.32
        "feature-gates": "WatchList=false,DRADeviceTaintRules=true",
        "runtime-config": "resource.k8s.io/v1beta2/devicetaintrules=true",
    }
    with real_apiserver(folder / "server", flags, accounts=False) as server, fake_kubelet(server):
        for document in DOCUMENTS:
            if not is_binding_of(document, "kubeloop-all-resources"):
                server.request("POST", PATHS[document["kind"]], document)
        yield server


def is_binding_of(document: JSON, role: str) -> bool:
    return document["kind"] == "ClusterRoleBinding" and document["roleRef"]["name"] == role


def rules_of(role: str) -> set[Permission]:
    rules = next(it["rules"] for it in DOCUMENTS if it["kind"] == "ClusterRole" and it["metadata"]["name"] == role)
    return granted_permissions(rules)


def audited_run(
    server: RealApiServer, folder: Path, account: str, scenario: Callable[[RealApiServer], None], *flags: str
) -> set[Permission]:
    """Run kubeloop with a ServiceAccount during a scenario; return the used permissions. None may be refused."""
    token = server.request(
        "POST",
        f"{PATHS['ServiceAccount']}/{account}/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}},
    )["status"]["token"]
    kubeconfig = server.kubeconfig_of(account, {"token": token})
    with Kubeloop(folder).running("run", f"--kubeconfig={kubeconfig}", "--trace-journal=", *flags):
        scenario(server)
    log = server.folder.parent / "audit.log"
    used, refused = audited_permissions(log, f"system:serviceaccount:kube-system:{account}")
    assert not refused
    return used


def test_role_of_the_controllers_grants_exactly_the_needed_permissions(server, tmp_path):
    used = audited_run(
        server,
        tmp_path,
        "kubeloop",
        lambda server: Scenario(server).run(),
        "--controllers=*,-garbagecollector,-namespace,-resourcequota",
        "--feature-gates=DRADeviceTaintRules=true",
        "--node-monitor-period=1s",
        "--node-startup-grace-period=1s",
        "--node-monitor-grace-period=10m",
        "--horizontal-pod-autoscaler-sync-period=1s",
        f"--service-account-private-key-file={server.flags['service-account-signing-key-file']}",
        f"--cluster-signing-cert-file={server.authority.certificate}",
        f"--cluster-signing-key-file={server.authority.key}",
    )
    granted = rules_of("kubeloop-controllers")
    unused = {it for it in granted if not any(covers(it, other) for other in used)}
    for_admission = {it for it in granted if it[1].endswith(("/finalizers", "/restricted"))}  # checked by OpenShift
    assert sorted(unused - for_admission - {*RARELY_USED}) == []
    assert sorted({*RARELY_USED} - granted) == []


WIDGETS = "/apis/example.com/v1/namespaces/y/widgets"
DEFINITION: JSON = {
    "group": "example.com",
    "scope": "Namespaced",
    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
}


def delete_owners_and_namespace(server: RealApiServer) -> None:
    """Delete owners by each propagation policy, use a quota, and delete the namespace with all kinds of content."""
    scenario = Scenario(server)
    path = "/api/v1/namespaces/y/configmaps"
    scenario.create("/api/v1/namespaces", "y")
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    scenario.create(definitions, "widgets.example.com", spec=DEFINITION)
    hard = {"count/configmaps": "50", "count/widgets.example.com": "50"}
    scenario.create("/api/v1/namespaces/y/resourcequotas", "limits", spec={"hard": hard})
    wait(lambda: is_established(scenario.items(definitions)["widgets.example.com"]), "CustomResourceDefinition")
    policies = ("Background", "Foreground", "Orphan")
    for policy in policies:
        owner = {"metadata": {"name": policy.lower()}, "apiVersion": "example.com/v1", "kind": "Widget"}
        uid = server.request("POST", WIDGETS, owner)["metadata"]["uid"]
        reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": policy.lower(), "uid": uid}
        metadata = {"name": policy.lower(), "ownerReferences": [{**reference, "blockOwnerDeletion": True}]}
        server.request("POST", path, {"metadata": metadata})
    wait(lambda: quota_usage(scenario) == {"count/configmaps": "3", "count/widgets.example.com": "3"}, "quota")
    for policy in policies:
        server.request("DELETE", f"{WIDGETS}/{policy.lower()}", {"propagationPolicy": policy})
    wait(lambda: {*scenario.items(path)} == {"orphan"} and not scenario.items(WIDGETS), "garbage collection")
    assert "ownerReferences" not in scenario.items(path)["orphan"]["metadata"]
    wait(lambda: quota_usage(scenario) == {"count/configmaps": "1", "count/widgets.example.com": "0"}, "quota")
    scenario.create(WIDGETS, "last", apiVersion="example.com/v1", kind="Widget")
    server.request("DELETE", "/api/v1/namespaces/y")
    wait(lambda: "y" not in scenario.items("/api/v1/namespaces"), "deleted namespace")


def is_established(definition: JSON) -> bool:
    conditions = definition.get("status", {}).get("conditions", ())
    return any(it["type"] == "Established" and it["status"] == "True" for it in conditions)


def quota_usage(scenario: Scenario) -> JSON:
    used: JSON = scenario.items("/api/v1/namespaces/y/resourcequotas")["limits"].get("status", {}).get("used", {})
    return used


def test_role_of_all_resources_grants_exactly_the_needed_permissions(server, tmp_path):
    account = "all-resources"
    server.request("POST", PATHS["ServiceAccount"], {"metadata": {"name": account}})
    for document in DOCUMENTS:
        if is_binding_of(document, "kubeloop-all-resources"):
            subjects = [{**document["subjects"][0], "name": account}]
            server.request("POST", PATHS[document["kind"]], {**document, "subjects": subjects})
    controllers = "--controllers=garbagecollector,namespace,resourcequota"
    used = audited_run(server, tmp_path, account, delete_owners_and_namespace, controllers)
    granted = rules_of("kubeloop-all-resources")
    assert sorted(it for it in granted if not any(covers(it, other) for other in used)) == []
