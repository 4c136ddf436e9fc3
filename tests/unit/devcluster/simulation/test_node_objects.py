"""Node objects of the simulation: registration, reported conditions, Lease."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.simulation.node_addresses import NodeAddresses
from kubeloop.devcluster.simulation.node_objects import (
    ANNOTATION_FAIL,
    NodeSettings,
    completed_node,
    failure_mode,
    is_simulated,
    lease_object,
    node_object,
    with_reported_conditions,
)

JSON = dict[str, Any]
BOTH_TAINTS = (("own", "NoSchedule"), ("node.kubernetes.io/not-ready", "NoSchedule"))
BEFORE, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"


def registered(settings: NodeSettings | None = None, index: int = 0, **annotations: str) -> JSON:
    """Return a healthy node as its kubelet registers it."""
    settings = settings or NodeSettings()
    node = completed_node(
        node_object(settings, index, now=BEFORE, uid="u"), settings, index, NodeAddresses(), now=BEFORE
    )
    assert node is not None
    metadata = node["metadata"]
    return {**node, "metadata": {**metadata, "annotations": {**metadata["annotations"], **annotations}}}


def conditions(node: JSON) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in node["status"]["conditions"]}


def taints(node: JSON) -> list[tuple[str, str]]:
    return [(taint["key"], taint["effect"]) for taint in node["spec"].get("taints") or ()]


def test_node_object_has_name_labels_and_taints_of_settings():
    taint = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
    settings = NodeSettings(name_prefix="worker-", first_number=5, zones=("a", "b"), labels={"x": "y"}, taints=(taint,))
    node = node_object(settings, 3, now=NOW, uid="u")
    labels = node["metadata"]["labels"]
    assert node["metadata"]["name"] == labels["kubernetes.io/hostname"] == "worker-8"
    assert (labels["topology.kubernetes.io/zone"], labels["x"]) == ("b", "y")
    assert node["spec"]["taints"] == [taint]


def test_completed_node_adds_missing_fields_once():
    settings = NodeSettings(capacity={"cpu": "4", "pods": "10"}, allocatable={"cpu": "3", "pods": "10"})
    node = registered(settings)
    assert node["status"]["capacity"]["cpu"] == "4"
    assert node["status"]["allocatable"]["cpu"] == "3"
    assert node["spec"]["podCIDR"] == "10.128.0.0/24"
    assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10250
    assert completed_node(node, settings, 0, NodeAddresses(), now=NOW) is None


def test_completed_node_keeps_fields_of_creator():
    node: JSON = {"metadata": {"name": "own", "uid": "u"}, "status": {"capacity": {"cpu": "1", "pods": "500"}}}
    complete = completed_node(node, NodeSettings(), 0, NodeAddresses(), now=NOW, conditions=False)
    assert complete is not None
    assert complete["status"]["capacity"] == complete["status"]["allocatable"] == {"cpu": "1", "pods": "500"}
    assert complete["spec"]["podCIDR"] == "10.128.0.0/22"
    assert "conditions" not in complete["status"]
    assert is_simulated(complete)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({}, None, id="not marked"),
        pytest.param({"annotations": {"kubeloop.dev/node": "simulated"}}, True, id="annotation"),
        pytest.param({"labels": {"kubeloop.dev/node": "simulated"}}, True, id="label"),
        pytest.param({"annotations": {"kubeloop.dev/node": "external"}}, False, id="external"),
        pytest.param({"annotations": {"kwok.x-k8s.io/node": "fake"}}, True, id="annotation of KWOK"),
        pytest.param({"annotations": {"kwok.x-k8s.io/node": "real"}}, None, id="another value of KWOK's annotation"),
    ],
)
def test_is_simulated(metadata, expected):
    assert is_simulated({"metadata": metadata}) is expected


def test_invalid_failure_mode_is_ignored():
    assert failure_mode({"metadata": {"annotations": {ANNOTATION_FAIL: "not-ready"}}}) == "not-ready"
    assert failure_mode({"metadata": {"annotations": {ANNOTATION_FAIL: "unknown"}}}) == ""


@pytest.mark.parametrize(
    ("mode", "type_", "status"),
    [
        pytest.param("not-ready", "Ready", "False", id="not-ready"),
        pytest.param("disk-pressure", "DiskPressure", "True", id="disk-pressure"),
        pytest.param("network-unavailable", "NetworkUnavailable", "True", id="network-unavailable"),
    ],
)
def test_reported_conditions_follow_failure_mode_until_recovery(mode, type_, status):
    healthy = registered()
    failing = with_reported_conditions(registered(**{ANNOTATION_FAIL: mode}), NOW)
    assert conditions(failing) == {**conditions(healthy), type_: status}
    recovered = with_reported_conditions({**failing, "metadata": healthy["metadata"]}, NOW)
    assert conditions(recovered) == conditions(healthy)


def test_repeated_report_changes_only_heartbeats():
    failing = with_reported_conditions(registered(**{ANNOTATION_FAIL: "not-ready"}), BEFORE)
    again = with_reported_conditions(failing, NOW)
    assert [condition["lastTransitionTime"] for condition in again["status"]["conditions"]] == [BEFORE] * 4
    assert [condition["lastHeartbeatTime"] for condition in again["status"]["conditions"]] == [NOW] * 4


def test_report_keeps_conditions_of_clients():
    node = registered()
    custom = {"type": "DiskPressure", "status": "True", "reason": "Custom"}
    others = [condition for condition in node["status"]["conditions"] if condition["type"] != "DiskPressure"]
    reported = with_reported_conditions({**node, "status": {**node["status"], "conditions": [*others, custom]}}, NOW)
    assert conditions(reported)["DiskPressure"] == "True"


@pytest.mark.parametrize(
    ("conditions", "existing", "expected"),
    [
        pytest.param(True, [], [("own", "NoSchedule")], id="its kubelet reports"),
        pytest.param(True, [{"type": "Ready", "status": "False"}], [*BOTH_TAINTS], id="its creator reports not ready"),
        pytest.param(False, [], [*BOTH_TAINTS], id="stages report"),
    ],
)
def test_taint_of_admission_is_removed_from_a_node_that_is_ready_at_once(conditions, existing, expected):
    node = node_object(NodeSettings(), 0, now=BEFORE, uid="u")
    node["spec"] = {"taints": [{"key": key, "effect": effect} for key, effect in BOTH_TAINTS]}
    node["status"] = {"conditions": existing}
    completed = completed_node(node, NodeSettings(), 0, NodeAddresses(), now=BEFORE, conditions=conditions)
    assert completed is not None
    assert taints(completed) == expected


def test_lease_is_owned_by_its_node():
    lease = lease_object(registered(), now=BEFORE, now_micro="2026-01-01T00:00:00.000000Z", uid="l")
    assert (lease["metadata"]["namespace"], lease["metadata"]["name"]) == ("kube-node-lease", "node-0")
    assert lease["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": "u"}]
    assert lease["spec"]["leaseDurationSeconds"] == 40
