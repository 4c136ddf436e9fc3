"""`kubeloop explain` on a cluster of a real kube-scheduler: the reasons and counts of its FailedScheduling messages.

Skipped if the binaries are not installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from support.comparison.fake_kubelet import make_node
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.processes.cli_processes import Kubeloop, wait_until

JSON = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
ZONE = "topology.kubernetes.io/zone"
GPU = {"key": "gpu", "value": "a100", "effect": "NoSchedule"}
CLUSTER = """
- {kind: storageclasses, group: storage.k8s.io, metadata: {name: immediate}, provisioner: example.com/none,
   volumeBindingMode: Immediate}
- {kind: storageclasses, group: storage.k8s.io, metadata: {name: late}, provisioner: kubernetes.io/no-provisioner,
   volumeBindingMode: WaitForFirstConsumer}
- {kind: persistentvolumeclaims, metadata: {name: immediate, namespace: default}, spec: {storageClassName: immediate,
   accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
- {kind: persistentvolumeclaims, metadata: {name: late, namespace: default}, spec: {storageClassName: late,
   accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
- {kind: deviceclasses, group: resource.k8s.io, metadata: {name: gpu}, spec: {}}
- {kind: resourceslices, group: resource.k8s.io, metadata: {name: node-0}, spec: {driver: gpu.example.com,
   nodeName: node-0, pool: {name: node-0, generation: 1, resourceSliceCount: 1}, devices: [{name: gpu}]}}
- {kind: resourceclaims, group: resource.k8s.io, metadata: {name: two-gpus, namespace: default},
   spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]}}}
- {kind: resourceclaims, group: resource.k8s.io, metadata: {name: no-class, namespace: default},
   spec: {devices: {requests: [{name: r, exactly: {deviceClassName: missing}}]}}}
- {kind: priorityclasses, group: scheduling.k8s.io, metadata: {name: high}, value: 1000}
"""
RUNNING = {f"web-{number}": {"nodeName": f"node-{number}"} for number in range(3)}
PENDING = """
selector: {nodeSelector: {disk: ssd}}
huge: {cpu: "64"}
tolerates-nothing: {nodeSelector: {zone: gpu}}
selector-and-size: {cpu: "5", nodeSelector: {rack: r1}}
ports: {hostPort: 80, nodeSelector: {zone: a}}
anti-affinity:
  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
    {labelSelector: {matchLabels: {app: web}}, topologyKey: kubernetes.io/hostname}]}}
  nodeSelector: {zone: a}
affinity:
  affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
    {labelSelector: {matchLabels: {app: none}}, topologyKey: kubernetes.io/hostname}]}}
spread:
  labels: {app: web}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule,
    nodeAffinityPolicy: Ignore, labelSelector: {matchLabels: {app: web}}}]
  nodeSelector: {topology.kubernetes.io/zone: z0}
immediate-claim: {volumes: [{name: v, persistentVolumeClaim: {claimName: immediate}}]}
late-claim: {volumes: [{name: v, persistentVolumeClaim: {claimName: late}}]}
missing-claim: {volumes: [{name: v, persistentVolumeClaim: {claimName: missing}}]}
extended-resource: {resource: example.com/fpga}
devices: {resourceClaims: [{name: gpu, resourceClaimName: two-gpus}]}
missing-device-class: {resourceClaims: [{name: gpu, resourceClaimName: no-class}]}
preemptor: {cpu: "8", priorityClassName: high}
gated: {schedulingGates: [{name: example.com/gate}]}
"""
POST_FILTER = r"(?<=\.) ((no new claims to deallocate|still not schedulable),.*|not found)$"  # of PostFilter plugins
NAMES = sorted(yaml.safe_load(PENDING))


def pod(
    name: str,
    cpu: str = "100m",
    hostPort: int = 0,  # noqa: N803
    resource: str = "",
    labels: JSON | None = None,
    **spec: Any,
) -> JSON:
    requests = {"cpu": cpu} | ({resource: "1"} if resource else {})
    limits = {resource: "1"} if resource else {}
    ports = [{"containerPort": hostPort, "hostPort": hostPort}] if hostPort else []
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests, "limits": limits}}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [container | {"ports": ports}]} | spec,
    }


def condition(server: RealApiServer, name: str) -> JSON:
    conditions = server.request("GET", f"{PODS}/{name}")["status"].get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == "PodScheduled"), {})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    """A cluster of five nodes, of which one is tainted and one cordoned, with a pending pod of each of PENDING."""
    needs_binaries("kube-scheduler")
    with real_apiserver(tmp_path_factory.mktemp("explain")) as server:
        small = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        for number in range(5):
            labels = {ZONE: f"z{number % 2}", "zone": "gpu" if number == 3 else "a", "rack": f"r{number % 3}"}
            make_node(server, f"node-{number}", labels=labels, taints=[GPU] if number == 3 else None, size=small)
        server.request(
            "PATCH",
            "/api/v1/nodes/node-4",
            {"spec": {"unschedulable": True}},
            content_type="application/merge-patch+json",
        )
        for document in yaml.safe_load(CLUSTER):
            kind, group = document.pop("kind"), document.pop("group", "")
            namespace = document["metadata"].get("namespace", "")
            base = f"/apis/{group}/v1" if group else "/api/v1"
            server.request("POST", f"{base}/{f'namespaces/{namespace}/' if namespace else ''}{kind}", document)
        for name, spec in RUNNING.items():
            server.request("POST", PODS, pod(name, cpu="1", hostPort=80, labels={"app": "web"}, **spec))
        for name, spec in yaml.safe_load(PENDING).items():
            server.request("POST", PODS, pod(name, **spec))
        server.start_component("kube-scheduler", "--leader-elect=false")
        for name in NAMES:
            wait_until(lambda name=name: condition(server, name).get("message"), f"{name} was tried")
        yield server


@pytest.mark.parametrize("name", NAMES)
def test_message_is_that_of_kube_scheduler(server: RealApiServer, tmp_path, name):
    explanation = Kubeloop(tmp_path).json("explain", f"pod/{name}", f"--kubeconfig={server.kubeconfig}", "--json")
    message = condition(server, name)["message"]
    if name == "gated":  # kube-apiserver sets the condition, with a message of its own
        assert explanation["message"] == "waiting for scheduling gates: [example.com/gate]"
        return
    assert explanation["message"] == re.sub(POST_FILTER, "", message)
    assert explanation["lastAttempt"] == f"Unschedulable: {message}"


def test_bound_and_missing_pods_are_reported(server: RealApiServer, tmp_path):
    kubeloop = Kubeloop(tmp_path)
    bound = kubeloop.run("explain", "pod/web-0", f"--kubeconfig={server.kubeconfig}")
    assert (bound.returncode, bound.stdout.splitlines()[0]) == (0, "pod default/web-0: the pod is bound to node-0")
    missing = kubeloop.run("explain", "pod/prots", f"--kubeconfig={server.kubeconfig}")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr == "error: no pod prots in any namespace\n  hint: did you mean ports?\n"


def test_configuration_of_the_cluster_selects_the_filters(server: RealApiServer, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration,"
        " profiles: [{plugins: {multiPoint: {disabled: [{name: TaintToleration}]}}}]}"
    )
    arguments = ("explain", "pod/tolerates-nothing", f"--kubeconfig={server.kubeconfig}", "--json")
    explanation = Kubeloop(tmp_path).json(*arguments, f"--config={config}")
    assert explanation["summary"].startswith("the pod fits on 1 of 5 nodes now")
    assert not any("--config" in note for note in explanation["notes"])


GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
GROUP_GATES = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"


@pytest.mark.parametrize(
    ("min_count", "topology", "placements"),
    [
        pytest.param(6, [{"key": ZONE}], [("z0", 3), ("z1", 2)], id="no zone has room"),
        pytest.param(6, [], [], id="the cluster has no room"),
    ],
)
def test_reason_of_a_pod_group_is_that_of_kube_scheduler(tmp_path, min_count, topology, placements):
    needs_binaries("kube-scheduler")
    flags = {"feature-gates": GROUP_GATES, "runtime-config": "scheduling.k8s.io/v1alpha2=true"}
    with real_apiserver(tmp_path / "server", flags) as server:
        for number in range(5):
            size = {"cpu": "4", "memory": "8Gi", "pods": "10"}
            make_node(server, f"node-{number}", labels={ZONE: f"z{number % 2}"}, taints=None, size=size)
        spec: JSON = {"schedulingPolicy": {"gang": {"minCount": min_count}}}
        if topology:
            spec["schedulingConstraints"] = {"topology": topology}
        server.request("POST", GROUPS, {"metadata": {"name": "train"}, "spec": spec})
        for number in range(min_count):
            server.request("POST", PODS, pod(f"w{number}", cpu="4", schedulingGroup={"podGroupName": "train"}))
        server.start_component("kube-scheduler", "--leader-elect=false", f"--feature-gates={GROUP_GATES}")

        def conditions() -> list[JSON]:
            return server.request("GET", f"{GROUPS}/train").get("status", {}).get("conditions", [])

        def was_tried() -> bool:
            return bool(conditions()) and all(condition(server, f"w{number}") for number in range(min_count))

        wait_until(was_tried, "the group was tried")
        explanation = Kubeloop(tmp_path).json(
            "explain", "podgroup/train", f"--kubeconfig={server.kubeconfig}", "--json"
        )
        attempt, (reported,) = explanation["lastAttempt"], conditions()
        assert (attempt["result"], reported["reason"]) == ("unschedulable", "Unschedulable")
        assert [(placement["name"], placement["feasiblePods"]) for placement in attempt["placements"]] == placements
        if topology:
            assert attempt["message"] == reported["message"]
        else:
            # kube-scheduler tries pods of one second in any order
            messages = [condition(server, f"w{number}").get("message", "") for number in range(min_count)]
            reason = attempt["message"].removeprefix("5 of 6 pods fit; w5: ")
            assert reason in [re.sub(POST_FILTER, "", message).strip() for message in messages]


RBAC = "/apis/rbac.authorization.k8s.io/v1"
ABSENT = re.compile(r"not exist|no such|there is no|not found|Insufficient|no (volume|default)")
NEEDED = {
    "": ["pods", "nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims"],
    "storage.k8s.io": ["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"],
}


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    """A cluster with RBAC whose pod "pending" has a claim that is bound to a volume; both exist, and their class."""
    needs_binaries()
    folder = tmp_path_factory.mktemp("restricted")
    with real_apiserver(folder, {"authorization-mode": "RBAC"}) as server:
        make_node(server, "node-0", size={"cpu": "4", "memory": "8Gi", "pods": "10"})
        storage_class = {"metadata": {"name": "std"}, "provisioner": "p", "volumeBindingMode": "Immediate"}
        server.request("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class)
        volume = {"accessModes": ["ReadWriteOnce"], "storageClassName": "std"}
        claim = {**volume, "volumeName": "pv", "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        claims = "/api/v1/namespaces/default/persistentvolumeclaims"
        uid = server.request("POST", claims, {"metadata": metadata, "spec": claim})["metadata"]["uid"]
        reference = {"namespace": "default", "name": "data", "uid": uid}
        source = {"csi": {"driver": "d.example.com", "volumeHandle": "h"}, "capacity": {"storage": "1Gi"}}
        volume |= {**source, "claimRef": reference}
        server.request("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "pv"}, "spec": volume})
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        server.request("POST", PODS, pod("pending", volumes=volumes))
        certificate, key = server.authority.sign("dev", user="dev")
        server.kubeconfig_of("dev", {"client-certificate": str(certificate), "client-key": str(key)})
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dev"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dev"}
        binding = {"metadata": {"name": "dev"}, "roleRef": role, "subjects": [subject]}
        server.request("POST", f"{RBAC}/clusterrolebindings", binding)
        yield server


def permit(server: RealApiServer, without: str) -> None:
    """Let the user read the resources of NEEDED but one."""
    rules = [
        {"apiGroups": [group], "resources": [name for name in names if name != without], "verbs": ["get", "list"]}
        for group, names in NEEDED.items()
    ]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "dev"}}
    server.request(
        "PATCH",
        f"{RBAC}/clusterroles/dev?fieldManager=test&force=true",
        role | {"rules": rules},
        content_type="application/apply-patch+yaml",
    )

    def may_list(group: str, name: str) -> bool:
        attributes = {"verb": "list", "group": group, "resource": name}
        review = {"spec": {"user": "dev", "resourceAttributes": attributes}}
        allowed: bool = server.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"][
            "allowed"
        ]
        return allowed

    def in_effect() -> bool:
        return all(may_list(group, name) is (name != without) for group, names in NEEDED.items() for name in names)

    wait_until(in_effect, "the rules are in effect")


@pytest.mark.parametrize("without", [name for names in NEEDED.values() for name in names])
def test_what_the_user_may_not_read_is_never_absent(restricted: RealApiServer, tmp_path, without):
    permit(restricted, without)
    dev = restricted.folder / "kubeconfig-dev"
    result = Kubeloop(tmp_path).run("explain", "pod", "pending", "-n", "default", f"--kubeconfig={dev}")
    assert not ABSENT.search(result.stdout + result.stderr)
    assert "fits on 1 of 1 nodes" in result.stdout or "permission; see kubectl auth can-i" in result.stderr
    if without in ("persistentvolumes", "storageclasses"):
        assert f"not checked, because the user may not list {without}" in " ".join(result.stdout.split())
