"""Pods of a DaemonSet: eligible nodes, template, target node."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.daemonset.daemon_pods import (
    Eligibility,
    PodPlacement,
    daemon_pod_body,
    for_node,
    is_updated,
    oldest_first,
    target_node,
    template_generation,
    with_daemon_tolerations,
)
from kubeloop.kube.objects.api_types import Pod, convert
from support.objects.daemon_sets import daemon_set, node, pod

RUNS, CONTINUES, NEVER = Eligibility(True, True), Eligibility(False, True), Eligibility(False, False)


def taint(key: str, effect: str, value: str = "") -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    nodes = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": nodes}}


GPU = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
NAMED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}


@pytest.mark.parametrize(
    ("template", "labels", "taints", "expected"),
    [
        pytest.param({}, {}, [], RUNS, id="any node"),
        pytest.param({"nodeName": "node-0"}, {}, [], RUNS, id="named node"),
        pytest.param({"nodeName": "node-1"}, {}, [], NEVER, id="another named node"),
        pytest.param({"nodeSelector": {"disk": "ssd"}}, {"disk": "ssd"}, [], RUNS, id="selected"),
        pytest.param({"nodeSelector": {"disk": "ssd"}}, {"disk": "hdd"}, [], NEVER, id="not selected"),
        pytest.param(required(GPU), {"gpu": ""}, [], RUNS, id="affinity to labels"),
        pytest.param(required(GPU), {}, [], NEVER, id="no affinity to labels"),
        pytest.param(required(GPU, NAMED), {}, [], RUNS, id="affinity to name"),
        pytest.param({}, {}, [taint("a", "NoSchedule")], CONTINUES, id="NoSchedule"),
        pytest.param({}, {}, [taint("a", "PreferNoSchedule")], RUNS, id="PreferNoSchedule"),
        pytest.param({}, {}, [taint("a", "NoExecute")], NEVER, id="NoExecute"),
        pytest.param(
            {"tolerations": [{"key": "a", "operator": "Exists"}]}, {}, [taint("a", "NoExecute")], RUNS, id="tolerated"
        ),
        pytest.param({}, {}, [taint("node.kubernetes.io/unschedulable", "NoSchedule")], RUNS, id="unschedulable"),
        pytest.param({}, {}, [taint("node.kubernetes.io/not-ready", "NoExecute")], RUNS, id="not ready"),
        pytest.param({}, {}, [taint("node.kubernetes.io/not-ready", "NoSchedule")], CONTINUES, id="not yet ready"),
        pytest.param({}, {}, [taint("node.kubernetes.io/network-unavailable", "NoSchedule")], CONTINUES, id="network"),
        pytest.param(
            {"hostNetwork": True},
            {},
            [taint("node.kubernetes.io/network-unavailable", "NoSchedule")],
            RUNS,
            id="host network",
        ),
    ],
)
def test_eligibility_follows_name_selector_affinity_and_taints(template, labels, taints, expected):
    placement = PodPlacement(daemon_set(pod=template), comparison_operators=False)
    assert placement.eligibility(node(labels=labels, taints=taints)) == expected


@pytest.mark.parametrize("enabled", [True, False])
def test_comparison_operators_of_tolerations_need_their_gate(enabled):
    toleration = {"key": "sla", "operator": "Gt", "value": "900", "effect": "NoExecute"}
    placement = PodPlacement(daemon_set(pod={"tolerations": [toleration]}), comparison_operators=enabled)
    expected = RUNS if enabled else NEVER
    assert placement.eligibility(node(taints=[taint("sla", "NoExecute", "950")])) == expected


def test_tolerations_are_added_and_replace_those_with_a_time():
    mine = {"key": "mine", "operator": "Exists"}
    timed = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    tolerations = with_daemon_tolerations({"tolerations": [timed | {"tolerationSeconds": 5}, mine]})
    assert tolerations[:2] == [timed, mine]
    assert [(each["key"].partition("/")[2], each["effect"]) for each in tolerations[2:]] == [
        ("not-ready", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ]


def test_pod_has_hash_generation_and_affinity_to_its_node_only():
    ds = daemon_set(annotations={"deprecated.daemonset.template.generation": "3"}, pod=required(GPU))
    body = for_node(daemon_pod_body(ds, "h"), "node-7")
    assert body["metadata"]["labels"] == {
        "app": "agent",
        "controller-revision-hash": "h",
        "pod-template-generation": "3",
    }
    field = {"key": "metadata.name", "operator": "In", "values": ["node-7"]}
    assert body["spec"]["affinity"] == required({"matchFields": [field]})["affinity"]
    assert target_node(convert(Pod, body)) == "node-7"
    assert "nodeName" not in body["spec"]


def test_other_affinity_of_the_template_stays():
    preferred = [{"weight": 1, "preference": GPU}]
    affinity = {
        "podAntiAffinity": {},
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
    }
    body = for_node(daemon_pod_body(daemon_set(pod={"affinity": affinity}), "h"), "node-7")
    assert body["spec"]["affinity"]["podAntiAffinity"] == {}
    assert body["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"nodeName": "a"} | required(NAMED), "a", id="bound"),
        pytest.param(required(GPU, NAMED), "node-0", id="affinity"),
        pytest.param(required(GPU), None, id="affinity to no name"),
        pytest.param({}, None, id="no affinity"),
    ],
)
def test_target_node(spec, expected):
    assert target_node(convert(Pod, {"spec": spec})) == expected


def test_template_generation_that_is_no_number_is_ignored():
    annotation = "deprecated.daemonset.template.generation"
    assert template_generation(daemon_set(annotations={annotation: "x"})) is None
    assert template_generation(daemon_set(annotations={annotation: "2"})) == "2"


def test_pod_is_updated_by_hash_or_by_generation():
    old = convert(Pod, {"metadata": {"labels": {"controller-revision-hash": "old", "pod-template-generation": "2"}}})
    assert is_updated(old, "old", None)
    assert is_updated(old, "new", "2")
    assert not is_updated(old, "new", "3")
    assert not is_updated(old, "new", None)


def test_oldest_pod_is_first_and_unbound_ones_are_last():
    pods = [
        pod("new", age_seconds=1),
        pod("unbound", node="", age_seconds=9),
        pod("b", age_seconds=5),
        pod("a", age_seconds=5),
    ]
    assert [each.metadata.name for each in oldest_first(pods)] == ["a", "b", "new", "unbound"]
