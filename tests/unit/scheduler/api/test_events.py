"""Cluster events: names, registrations that match, and the events of node and pod updates."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import ActionType, cluster_event
from kubeloop.scheduler.cache.pod_requests import RequestRules

TAINT, LABEL = ActionType.UPDATE_NODE_TAINT, ActionType.UPDATE_NODE_LABEL


@pytest.mark.parametrize(
    ("action", "name"),
    [
        pytest.param(events.ADD, "Add", id="one flag"),
        pytest.param(TAINT, "UpdateNodeTaint", id="several words"),
        pytest.param(events.UPDATE, "Update", id="any update"),
        pytest.param(events.ALL, "All", id="all"),
        pytest.param(TAINT | events.ADD, "Add|UpdateNodeTaint", id="combined"),
    ],
)
def test_action_name(action: ActionType, name: str) -> None:
    assert events.action_name(action) == name


PENDING_POD_DELETE = cluster_event(events.PENDING_POD_RESOURCE, events.DELETE)


@pytest.mark.parametrize(
    ("registered", "event", "matches"),
    [
        pytest.param(events.UNSCHEDULABLE_TIMEOUT, events.NODE_ADD, True, id="wildcard"),
        pytest.param(cluster_event("Node", TAINT | LABEL), cluster_event("Node", LABEL), True, id="one of several"),
        pytest.param(cluster_event("Node", LABEL), cluster_event("Node", TAINT), False, id="another action"),
        pytest.param(cluster_event("Node", LABEL), cluster_event("Node", events.UPDATE), False, id="less specific"),
        pytest.param(cluster_event("CSINode", events.ADD), events.NODE_ADD, False, id="another resource"),
        pytest.param(cluster_event("*", events.ADD), events.NODE_ADD, True, id="any resource"),
        pytest.param(cluster_event("Pod", events.DELETE), events.ASSIGNED_POD_DELETE, True, id="assigned pod"),
        pytest.param(cluster_event("Pod", events.DELETE), PENDING_POD_DELETE, True, id="pending pod"),
        pytest.param(events.ASSIGNED_POD_DELETE, PENDING_POD_DELETE, False, id="assigned pods only"),
    ],
)
def test_registration_matches_event(registered: Any, event: Any, matches: bool) -> None:
    assert events.matches(registered, event) is matches


def node(**changes: Any) -> Node:
    metadata = {"name": "n", "labels": changes.get("labels", {}), "annotations": changes.get("annotations", {})}
    spec = {"unschedulable": changes.get("unschedulable", False), "taints": changes.get("taints", [])}
    conditions = [{"type": "Ready", "status": changes.get("ready", "True"), "reason": changes.get("reason", "")}]
    status = {"allocatable": changes.get("allocatable", {"cpu": "1"}), "conditions": conditions}
    status["declaredFeatures"] = changes.get("features", [])
    return convert(Node, {"metadata": metadata, "spec": spec, "status": status})


@pytest.mark.parametrize(
    ("old", "new", "labels"),
    [
        pytest.param({}, {}, [], id="nothing"),
        pytest.param({"unschedulable": True}, {}, ["NodeUpdateNodeTaint"], id="uncordoned"),
        pytest.param({}, {"unschedulable": True}, [], id="cordoned"),
        pytest.param(
            {}, {"taints": [{"key": "a", "effect": "NoSchedule"}]}, ["NodeUpdateNodeTaint"], id="taint is added"
        ),
        pytest.param(
            {"taints": [{"key": "a", "effect": "NoSchedule"}]}, {}, ["NodeUpdateNodeTaint"], id="taint is removed"
        ),
        pytest.param({}, {"reason": "KubeletReady"}, [], id="condition with another reason"),
        pytest.param({}, {"ready": "False"}, ["NodeUpdateNodeCondition"], id="condition"),
        pytest.param(
            {},
            {"allocatable": {"cpu": "2"}, "labels": {"a": "b"}, "annotations": {"a": "b"}},
            ["NodeUpdateNodeAllocatable", "NodeUpdateNodeLabel", "NodeUpdateNodeAnnotation"],
            id="several",
        ),
    ],
)
def test_node_update_events(old: dict[str, Any], new: dict[str, Any], labels: list[str]) -> None:
    assert [event.label for event in events.node_update_events(node(**old), node(**new))] == labels


def test_declared_features_of_a_node_are_an_event_if_their_gate_is_on() -> None:
    old, new = node(), node(features=["F"])
    (event,) = events.node_update_events(old, new)
    assert event.label == "NodeUpdateNodeDeclaredFeature"
    assert events.node_update_events(old, new, declared_features=False) == []


def pod(**changes: Any) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": changes.get("cpu", "2")}}}
    gates = [{"name": name} for name in changes.get("gates", ())]
    tolerations = [{"key": key} for key in changes.get("tolerations", ())]
    spec = {
        "containers": [container],
        "nodeName": changes.get("node_name", ""),
        "schedulingGates": gates,
        "tolerations": tolerations,
    }
    return convert(Pod, {"metadata": {"name": "p", "labels": changes.get("labels", {})}, "spec": spec})


@pytest.mark.parametrize(
    ("old", "new", "labels"),
    [
        pytest.param({}, {}, ["UnschedulablePodUpdate"], id="nothing specific"),
        pytest.param({}, {"node_name": "n"}, ["AssignedPodUpdate"], id="bound"),
        pytest.param({}, {"cpu": "1"}, ["UnschedulablePodUpdatePodScaleDown"], id="scaled down"),
        pytest.param({}, {"cpu": "3"}, ["UnschedulablePodUpdate"], id="scaled up"),
        pytest.param(
            {"gates": ["a", "b"]}, {"gates": ["a"]}, ["UnschedulablePodUpdate"], id="one gate of two eliminated"
        ),
        pytest.param(
            {"gates": ["a"]},
            {},
            ["UnschedulablePodUpdatePodSchedulingGatesEliminated"],
            id="last gate eliminated",
        ),
        pytest.param(
            {"node_name": "n"},
            {"node_name": "n", "labels": {"a": "b"}, "tolerations": ["t"]},
            ["AssignedPodUpdatePodLabel", "AssignedPodUpdatePodToleration"],
            id="labels and tolerations",
        ),
    ],
)
def test_pod_update_events(old: dict[str, Any], new: dict[str, Any], labels: list[str]) -> None:
    assert [event.label for event in events.pod_update_events(pod(**old), pod(**new))] == labels


@pytest.mark.parametrize(
    ("rules", "label"),
    [
        (RequestRules(), "AssignedPodUpdatePodScaleDown"),
        (RequestRules(pod_level=False), "AssignedPodUpdatePodScaleDown"),
        (RequestRules(pod_level_status=False), "AssignedPodUpdate"),
    ],
)
def test_finished_pod_level_resize_is_a_scale_down_if_its_gate_is_on(rules: RequestRules, label: str) -> None:
    def resized(cpu: str) -> Pod:
        spec = {"nodeName": "n", "containers": [{"name": "c"}], "resources": {"requests": {"cpu": "1"}}}
        status = {"resources": {"requests": {"cpu": cpu}}}
        return convert(Pod, {"metadata": {"name": "p"}, "spec": spec, "status": status})

    assert [event.label for event in events.pod_update_events(resized("3"), resized("1"), rules)] == [label]


CPU_1, CPU_2 = ({"requests": {"cpu": cpu}} for cpu in "12")


@pytest.mark.parametrize(
    ("old", "new", "scaled_down"),
    [
        pytest.param({"resources": CPU_2}, {"resources": CPU_1}, True, id="pod level, down"),
        pytest.param({"resources": CPU_1}, {"resources": CPU_2}, False, id="pod level, up"),
        pytest.param({"overhead": {"cpu": "2"}}, {"overhead": {"cpu": "1"}}, True, id="overhead, down"),
        pytest.param({"overhead": {"cpu": "1"}}, {"overhead": {"cpu": "2"}}, False, id="overhead, up"),
        pytest.param({"overhead": {"cpu": "1"}}, {}, True, id="overhead, removed"),
        pytest.param(
            {"initContainers": [{"name": "i", "resources": CPU_2}]},
            {"initContainers": [{"name": "i", "resources": CPU_1}]},
            True,
            id="init container, down",
        ),
        pytest.param(
            {"initContainers": [{"name": "i", "resources": CPU_1}]},
            {"initContainers": [{"name": "i", "resources": CPU_2}]},
            False,
            id="init container, up",
        ),
        pytest.param(
            {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
            {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
            True,
            id="one resource down, another up",
        ),
    ],
)
def test_scale_down_compares_each_resource(old: dict[str, Any], new: dict[str, Any], scaled_down: bool) -> None:
    def pod_of(spec: dict[str, Any]) -> Pod:
        return convert(
            Pod, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], "nodeName": "n"} | spec}
        )

    labels = [event.label for event in events.pod_update_events(pod_of(old), pod_of(new))]
    assert labels == ["AssignedPodUpdatePodScaleDown" if scaled_down else "AssignedPodUpdate"]


@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize("field", ["resources", "allocatedResources"])
@pytest.mark.parametrize(("cpu", "scaled_down"), [("3", True), ("4", False)])
def test_finished_resize_of_a_container_is_a_scale_down(kind: str, field: str, cpu: str, scaled_down: bool) -> None:
    def pod_of(actual: str) -> Pod:
        container = {"name": "c", "resources": CPU_1, "restartPolicy": "Always"}
        spec = {"nodeName": "n", "containers": [{"name": "main"}]}
        spec["containers" if kind == "containerStatuses" else "initContainers"] = [container]
        amounts = {"cpu": actual}
        resources = {"requests": amounts} if field == "resources" else {}
        status = {"name": "c", "resources": resources, "allocatedResources": {} if resources else amounts}
        return convert(Pod, {"metadata": {"name": "p"}, "spec": spec, "status": {kind: [status]}})

    labels = [event.label for event in events.pod_update_events(pod_of("4"), pod_of(cpu))]
    assert labels == ["AssignedPodUpdatePodScaleDown" if scaled_down else "AssignedPodUpdate"]
