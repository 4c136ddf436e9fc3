"""Sums of a node: requests, ports, claims and images."""

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.scheduler.cache import node_info
from kubeloop.scheduler.cache.node_info import (
    NodeInfo,
    PodInfo,
    is_extended_resource,
    is_scalar_resource,
    may_be_devices,
    node_allocatable,
)
from kubeloop.scheduler.cache.pod_requests import RequestRules
from support.scheduling.plugin_cluster import make_node, make_pod


@pytest.fixture
def computations(monkeypatch) -> list[Pod]:
    """Return a list of the pods whose requests are computed."""
    pods: list[Pod] = []
    compute = node_info.accounted_requests

    def accounted(pod: Pod, rules: RequestRules) -> tuple[dict[str, int], int, int]:
        pods.append(pod)
        return compute(pod, rules)

    monkeypatch.setattr(node_info, "accounted_requests", accounted)
    return pods


def test_adding_and_removing_a_pod_restores_the_sums():
    node = NodeInfo.of(make_node("a"))
    before = dict(node.requested)
    node.add_pod(PodInfo(make_pod("web", "a", cpu="500m", memory="1Gi")))
    assert node.requested["cpu"] == before.get("cpu", 0) + 500
    assert node.requested["memory"] == before.get("memory", 0) + 2**30
    other = PodInfo(make_pod("other", "a"))
    node.add_pod(other)
    assert node.label_counts == {other.label_class: 2}
    node.remove_pod("web")
    assert node.label_counts == {other.label_class: 1}
    node.remove_pod("other")
    assert node.label_counts == {}
    assert {name: amount for name, amount in node.requested.items() if amount} == {
        name: amount for name, amount in before.items() if amount
    }


def test_clone_does_not_change_with_the_original():
    node = NodeInfo.of(make_node("a"))
    clone = node.clone()
    node.add_pod(PodInfo(make_pod("web", "a", cpu="1")))
    assert clone.requested != node.requested
    assert list(clone.pods) == []


def test_allocatable_is_in_milli_cpus_and_bytes():
    amounts = node_allocatable(make_node("a", allocatable={"cpu": "2", "memory": "1Gi", "example.com/gpu": "3"}))
    assert amounts["cpu"] == 2000
    assert amounts["memory"] == 2**30
    assert amounts["example.com/gpu"] == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [("example.com/gpu", True), ("hugepages-2Mi", True), ("cpu", False), ("memory", False), ("pods", False)],
)
def test_scalar_resources_are_extended_resources_and_huge_pages(name, expected):
    assert is_scalar_resource(name) is expected


@pytest.mark.parametrize(
    ("name", "extended", "devices"),
    [
        ("example.com/gpu", True, True),
        ("deviceclass.resource.kubernetes.io/gpu", False, True),
        ("kubernetes.io/x", False, False),
        ("requests.example.com/gpu", False, False),
        ("cpu", False, False),
        ("hugepages-2Mi", False, False),
    ],
)
def test_extended_resources_may_be_devices(name, extended, devices):
    assert (is_extended_resource(name), may_be_devices(name)) == (extended, devices)


def resized(field: str, **resources: Any) -> dict[str, Any]:
    return {field: [{"name": "c", **resources}]}


PENDING_RESIZE = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}


@pytest.mark.parametrize(
    ("changes", "computed_again"),
    [
        pytest.param({}, False, id="another version without changes"),
        pytest.param({"metadata": {"name": "p", "uid": "p", "labels": {"a": "b"}}}, False, id="labels"),
        pytest.param({"metadata": {"name": "p", "uid": "q"}}, True, id="another pod"),
        pytest.param({"status": {"phase": "Running"}}, False, id="phase"),
        pytest.param({"status": resized("containerStatuses", restartCount=1)}, True, id="first container status"),
        pytest.param({"status": resized("containerStatuses", resources={})}, True, id="resources of a container"),
        pytest.param({"status": resized("initContainerStatuses", resources={})}, True, id="resources of a sidecar"),
        pytest.param({"status": {"resources": {}}}, True, id="resources of the pod"),
        pytest.param({"status": {"allocatedResources": {"cpu": "1"}}}, True, id="resources allocated to the pod"),
        pytest.param({"status": {"conditions": [PENDING_RESIZE]}}, True, id="pending resize"),
        pytest.param({"status": {"conditions": [{"type": "Ready"}]}}, False, id="another condition"),
        pytest.param({"spec": {"containers": [{"name": "d"}]}}, True, id="containers"),
        pytest.param({"spec": {"overhead": {"cpu": "1"}}}, True, id="overhead"),
        pytest.param({"spec": {"resources": {"requests": {"cpu": "1"}}}}, True, id="pod-level resources"),
        pytest.param({"spec": {"initContainers": [{"name": "i"}]}}, True, id="init containers"),
        pytest.param({"spec": {"volumes": [{"name": "v"}]}}, True, id="volumes"),
        pytest.param({"spec": {"affinity": {"podAffinity": {}}}}, True, id="affinity"),
        pytest.param({"spec": {"priority": 7}}, False, id="priority"),
    ],
)
def test_update_computes_requests_again_if_they_may_have_changed(
    changes: dict[str, Any], computed_again: bool, computations: list[Pod]
):
    body = {"metadata": {"name": "p", "uid": "p"}, "spec": {}, "status": {}}
    before, after = PodInfo(convert(Pod, body)), convert(Pod, body | changes)
    updated = before.with_pod(after)
    assert computations[1:] == ([after] if computed_again else [])
    expected = PodInfo(after)
    assert (updated.pod, updated.uid, updated.priority) == (after, expected.uid, expected.priority)
    assert (updated.requests, updated.label_class) == (expected.requests, expected.label_class)


@pytest.mark.parametrize("field", ["containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize(
    ("resources", "computed_again"),
    [
        pytest.param({"resources": {"requests": {"cpu": "1"}}}, False, id="unchanged"),
        pytest.param({"resources": {"requests": {"cpu": "2"}}}, True, id="actual resources"),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}},
            True,
            id="allocated resources",
        ),
    ],
)
def test_update_of_a_resize(field: str, resources: dict[str, Any], computed_again: bool, computations: list[Pod]):
    def pod(**status: Any) -> Pod:
        return convert(Pod, {"metadata": {"name": "p", "uid": "p"}, "status": resized(field, **status)})

    before = PodInfo(pod(resources={"requests": {"cpu": "1"}}))
    updated = before.with_pod(pod(restartCount=1, **resources))
    assert computations[1:] == ([updated.pod] if computed_again else [])


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        pytest.param({"hostPort": 80}, {("0.0.0.0", "TCP", 80)}, id="defaults"),
        pytest.param({"hostPort": 1, "hostIP": "10.0.0.1", "protocol": "UDP"}, {("10.0.0.1", "UDP", 1)}, id="all set"),
        pytest.param({"hostPort": 0, "containerPort": 80}, set(), id="no host port"),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_host_ports_of_a_pod(kind, port, expected):
    container = {"name": "c", "ports": [port], **({"restartPolicy": "Always"} if kind == "initContainers" else {})}
    spec = {"containers": [{"name": "main"}], kind: [container]}
    assert set(PodInfo(convert(Pod, {"metadata": {"name": "p"}, "spec": spec})).host_ports) == expected
    ordinary = {"containers": [{"name": "main"}], "initContainers": [{"name": "c", "ports": [port]}]}
    assert not PodInfo(convert(Pod, {"metadata": {"name": "p"}, "spec": ordinary})).host_ports


def claiming(name: str, *claims: str) -> PodInfo:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return PodInfo(make_pod(name, "a", volumes=volumes))


def test_claims_are_counted_by_pod():
    node = NodeInfo.of(make_node("a"))
    for pod in (claiming("p", "x", "y"), claiming("q", "x"), claiming("r", "x")):
        node.add_pod(pod)
    assert node.pvc_ref_counts == {"default/x": 3, "default/y": 1}
    counts = []
    for name in "pqr":
        node.remove_pod(name)
        counts.append(dict(node.pvc_ref_counts))
    assert counts == [{"default/x": 2}, {"default/x": 1}, {}]


def test_sums_have_exactly_the_requests_of_the_pods():
    node = NodeInfo.of(make_node("a"))
    info = PodInfo(make_pod("p", "a", cpu="250m", memory="1Mi"))
    node.add_to_sums(info)
    assert {name: node.requested[name] for name in info.requests} == {"cpu": 250, "memory": 2**20}
    node.remove_from_sums(info)
    assert not any(node.requested.values())
