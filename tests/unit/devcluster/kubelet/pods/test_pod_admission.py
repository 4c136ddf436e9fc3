"""Pod admission of the kubelet: requests, host ports, node affinity, and the order of the checks."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kubelet.pods.pod_admission import (
    AdmissionRejection,
    amounts,
    fits_node_affinity,
    host_ports,
    ports_conflict,
    rejection,
    requested_amounts,
)

JSON = dict[str, Any]
NODE: JSON = {"metadata": {"name": "node-0", "labels": {"disk": "ssd"}}}


def requesting(name: str = "c", *, sidecar: bool = False, **requests: str) -> JSON:
    container: JSON = {"name": name, "resources": {"requests": requests}}
    return {**container, "restartPolicy": "Always"} if sidecar else container


def pod(*containers: JSON, **spec: Any) -> JSON:
    return {"metadata": {"name": "web"}, "spec": {"containers": list(containers), **spec}}


def test_amounts_are_millicores_and_units():
    assert amounts({"cpu": "1.5", "memory": "1Gi", "pods": "110"}) == {"cpu": 1500, "memory": 1 << 30, "pods": 110}
    assert amounts(None) == {}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param(pod(requesting(cpu="1"), requesting(cpu="2")), 3000, id="sum of containers"),
        pytest.param(pod(requesting(cpu="1"), initContainers=[requesting(cpu="4")]), 4000, id="larger init container"),
        pytest.param(
            pod(requesting(cpu="1"), initContainers=[requesting(cpu="2", sidecar=True)]), 3000, id="sidecar is added"
        ),
        pytest.param(
            pod(requesting(cpu="1"), initContainers=[requesting(cpu="2", sidecar=True), requesting(cpu="3")]),
            5000,
            id="init container runs with earlier sidecar",
        ),
        pytest.param(
            pod(requesting(cpu="1"), resources={"requests": {"cpu": "7"}}), 7000, id="pod-level requests replace"
        ),
        pytest.param(pod(requesting(cpu="1"), overhead={"cpu": "100m"}), 1100, id="overhead is added"),
    ],
)
def test_pod_requests(spec, cpu):
    assert requested_amounts(spec) == {"cpu": cpu, "pods": 1}


def test_host_ports_are_those_of_containers_and_sidecars():
    def with_port(port: int, **fields: Any) -> JSON:
        return {"name": "c", "ports": [{"containerPort": 80, "hostPort": port}, {"containerPort": 81}], **fields}

    inits = [with_port(1), with_port(2, restartPolicy="Always")]
    assert host_ports(pod(with_port(3), initContainers=inits)) == [("TCP", "0.0.0.0", 3), ("TCP", "0.0.0.0", 2)]


@pytest.mark.parametrize(
    ("used", "conflict"),
    [
        pytest.param(("TCP", "10.0.0.1", 80), True, id="same address"),
        pytest.param(("TCP", "0.0.0.0", 80), True, id="all addresses"),
        pytest.param(("TCP", "10.0.0.2", 80), False, id="another address"),
        pytest.param(("UDP", "10.0.0.1", 80), False, id="another protocol"),
        pytest.param(("TCP", "10.0.0.1", 81), False, id="another port"),
    ],
)
def test_ports_conflict(used, conflict):
    requested = ("TCP", "10.0.0.1", 80)
    assert ports_conflict([requested], [used]) is conflict
    assert ports_conflict([used], [requested]) is conflict


def test_fits_node_affinity():
    assert fits_node_affinity(pod(), NODE)
    assert fits_node_affinity(pod(nodeSelector={"disk": "ssd"}), NODE)
    assert not fits_node_affinity(pod(nodeSelector={"disk": "hdd"}), NODE)


def reason(spec: JSON, requested: dict[str, int], allocatable: dict[str, int]) -> str:
    rejected = rejection(spec, NODE, requested, used={"cpu": 500}, allocatable=allocatable, used_ports=())
    return rejected.reason if rejected else ""


def test_rejection_by_resources_comes_first():
    selector = pod(nodeSelector={"disk": "hdd"})
    assert reason(selector, {"cpu": 600, "pods": 1}, {"cpu": 1000, "pods": 1}) == "OutOfcpu"
    assert reason(selector, {"cpu": 500, "pods": 1}, {"cpu": 1000, "pods": 1}) == "NodeAffinity"
    assert reason(pod(), {"cpu": 500, "pods": 1}, {"cpu": 1000, "pods": 1}) == ""


def test_extended_resource_is_checked_only_if_node_has_it():
    assert reason(pod(), {"example.com/gpu": 1}, {}) == ""
    assert reason(pod(), {"example.com/gpu": 2}, {"example.com/gpu": 1}) == "OutOfexample.com/gpu"
    assert reason(pod(), {"hugepages-2Mi": 1}, {}) == "OutOfhugepages-2Mi"


def test_rejection_message_states_amounts():
    rejected = rejection(pod(), NODE, {"cpu": 600}, used={"cpu": 500}, allocatable={"cpu": 1000}, used_ports=())
    message = "Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000"
    assert rejected == AdmissionRejection("OutOfcpu", message)


def test_resources_with_allocated_devices_are_not_requested():
    mappings = [{"containerName": "a", "resourceName": "example.com/gpu", "requestName": "r"}]
    containers = [
        {"name": name, "resources": {"requests": {"cpu": "1", "example.com/gpu": "2"}}} for name in ("a", "b")
    ]
    devices = pod(containers=containers) | {
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": mappings}}
    }
    assert requested_amounts(devices) == {"cpu": 2000, "example.com/gpu": 2, "pods": 1}
    assert requested_amounts(pod(containers=containers)) == {"cpu": 2000, "example.com/gpu": 4, "pods": 1}


def test_claims_take_resources_of_the_node():
    taken = {"resourceClaimName": "c", "containers": ["a"], "resources": {"cpu": "500m", "memory": "1Gi"}}
    containers = [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]
    status = {"status": {"nodeAllocatableResourceClaimStatuses": [taken, taken]}}
    assert requested_amounts(pod(containers=containers) | status) == {"cpu": 2000, "memory": 2 << 30, "pods": 1}
    pod_level = pod(containers=containers, resources={"requests": {"cpu": "3"}}) | status
    assert requested_amounts(pod_level) == {"cpu": 3000, "memory": 2 << 30, "pods": 1}


def reason_of(pod: JSON, node: JSON | None = None) -> str:
    """Return reason and message of the rejection by a node without pods, "" if the pod is admitted."""
    rejected = rejection(pod, node or NODE, {}, used={}, allocatable={}, used_ports=())
    return "" if rejected is None else f"{rejected.reason}: {rejected.message}"


@pytest.mark.parametrize(
    ("name", "spec", "problem"),
    [
        ("net.ipv4.tcp_syncookies", {}, ""),
        ("net/ipv4/tcp_syncookies", {}, ""),
        ("kernel.shm_rmid_forced", {}, ""),
        ("kernel.msgmax", {}, '"kernel.msgmax" not allowlisted'),
        ("net/ipv4/conf/eno2.100/x", {}, '"net.ipv4.conf.eno2/100.x" not allowlisted'),
        (
            "net.ipv4.tcp_syncookies",
            {"hostNetwork": True},
            '"net.ipv4.tcp_syncookies" not allowed with host Net enabled',
        ),
        ("kernel.shm_rmid_forced", {"hostIPC": True}, '"kernel.shm_rmid_forced" not allowed with host IPC enabled'),
    ],
)
def test_unsafe_sysctl_is_forbidden(name: str, spec: JSON, problem: str):
    context = {"sysctls": [{"name": name, "value": "1"}]}
    expected = f"SysctlForbidden: forbidden sysctl: {problem}" if problem else ""
    assert reason_of(pod(requesting(), securityContext=context, **spec)) == expected


LABELLED = {"metadata": {"name": "web", "labels": {"kubernetes.io/os": "windows"}}, "spec": {"containers": []}}


@pytest.mark.parametrize(
    ("rejected_pod", "labels", "reason"),
    [
        (pod(os={"name": "windows"}), {}, "PodOSNotSupported"),
        (pod(os={"name": "windows"}), {"kubernetes.io/os": "windows"}, ""),
        (pod(os={"name": "linux"}), {}, ""),
        (LABELLED, {}, "PodOSSelectorNodeLabelDoesNotMatch"),
        (LABELLED, {"kubernetes.io/os": "windows"}, ""),
    ],
)
def test_other_operating_system_is_rejected(rejected_pod: JSON, labels: JSON, reason: str):
    node = {"metadata": {"name": "node-0", "labels": labels}}
    assert reason_of(rejected_pod, node).partition(":")[0] == reason


@pytest.mark.parametrize(("supported", "reason"), [(True, ""), (False, "SupplementalGroupsPolicyNotSupported")])
def test_strict_supplemental_groups_need_support_of_the_node(*, supported: bool, reason: str):
    node = {**NODE, "status": {"features": {"supplementalGroupsPolicy": supported}}}
    strict = pod(securityContext={"supplementalGroupsPolicy": "Strict"})
    assert reason_of(strict, node).partition(":")[0] == reason


NO_EXECUTE = {"key": "k", "value": "v", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("taint", "tolerations", "reason"),
    [
        (NO_EXECUTE, [], "TaintToleration"),
        (NO_EXECUTE, [{"key": "k", "operator": "Exists"}], ""),
        ({**NO_EXECUTE, "effect": "NoSchedule"}, [], ""),
    ],
)
def test_untolerated_no_execute_taint_is_rejected(taint: JSON, tolerations: list[JSON], reason: str):
    node = {**NODE, "spec": {"taints": [taint]}}
    assert reason_of(pod(requesting(), tolerations=tolerations), node).partition(":")[0] == reason


@pytest.mark.parametrize(
    ("pressure", "rejected_pod", "admitted"),
    [
        ("MemoryPressure", pod(requesting()), False),
        ("MemoryPressure", pod(requesting(cpu="1")), True),
        ("MemoryPressure", pod(requesting(), tolerations=[{"operator": "Exists"}]), True),
        ("DiskPressure", pod(requesting(cpu="1"), tolerations=[{"operator": "Exists"}]), False),
        ("PIDPressure", pod(requesting(cpu="1")), False),
        ("DiskPressure", pod(requesting(), priority=2_000_000_000), True),
    ],
)
def test_node_under_pressure_admits_few_pods(pressure: str, rejected_pod: JSON, *, admitted: bool):
    node = {**NODE, "status": {"conditions": [{"type": pressure, "status": "True"}]}}
    expected = "" if admitted else f"Evicted: The node had condition: [{pressure}]. "
    assert reason_of(rejected_pod, node) == expected
