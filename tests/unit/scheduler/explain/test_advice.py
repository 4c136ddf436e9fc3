"""Advice for pending pods, per plugin."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.scheduler.cache.node_info import NodeInfo
from kubeloop.scheduler.explain.advice import advice
from support.scheduling.plugin_cluster import make_node, make_pod

GPU = {"key": "gpu", "value": "a100", "effect": "NoSchedule"}
SOFT = {"key": "soft", "effect": "PreferNoSchedule"}


@pytest.mark.parametrize(
    ("plugin", "message", "expected"),
    [
        pytest.param("NodePorts", "", ["free the host port on a node, or use another one"], id="known plugin"),
        pytest.param("example:Mine", "", [], id="unknown plugin"),
        pytest.param(
            "DynamicResources",
            'pod "default/p": ResourceClaim not created yet',
            ["check that the ResourceClaimTemplate exists, and that its controller runs"],
            id="message about a claim template",
        ),
        pytest.param(
            "VolumeBinding",
            "pod has unbound immediate PersistentVolumeClaims",
            ["bind the pod's claims (see kubectl describe pvc)"],
            id="message about a claim",
        ),
        pytest.param(
            "VolumeBinding",
            'waiting for ephemeral volume controller: claim "c" not found',
            ["wait until the claim of the pod's ephemeral volume is created"],
            id="first matching part of the message",
        ),
    ],
)
def test_advice_depends_on_plugin_and_message(plugin: str, message: str, expected: list[str]) -> None:
    assert advice([plugin], make_pod("p"), message=message) == expected


def details(plugin: str, pod: Any, *nodes: NodeInfo) -> list[str]:
    """Return the details of the advice for `plugin`."""
    (text,) = advice([plugin], pod, nodes)
    return text.split(": ", 1)[1].split("; ") if ": " in text else []


def test_taints_are_counted_most_frequent_first() -> None:
    other = {"key": "other", "effect": "NoExecute"}
    nodes = [NodeInfo.of(make_node(f"n{i}", taints=taints)) for i, taints in enumerate([[other], [SOFT, GPU], [GPU]])]
    assert details("TaintToleration", make_pod("p"), *nodes) == [
        "gpu=a100:NoSchedule (on 2 of 3 nodes)",
        "other:NoExecute (on 1 of 3 nodes)",
    ]
    tolerant = make_pod("p", tolerations=[{"operator": "Exists"}])
    assert details("TaintToleration", tolerant, *nodes) == []


def test_node_selector_requirements_are_counted_rarest_first() -> None:
    nodes = [NodeInfo.of(make_node(f"n{i}", labels={"disk": "ssd"} if i else {})) for i in range(3)]
    pod = make_pod("p", nodeSelector={"disk": "ssd", "zone": "a"})
    assert details("NodeAffinity", pod, *nodes) == ["zone=a (on 0 of 3 nodes)", "disk=ssd (on 2 of 3 nodes)"]


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param({"cpu": "4", "memory": "8Gi"}, [], id="largest node is large enough"),
        pytest.param(
            {"cpu": "4500m", "memory": "9Gi"},
            [
                "no node has more than 4 of cpu, the pod requests 4500m",
                "no node has more than 8Gi of memory, the pod requests 9Gi",
            ],
            id="too large",
        ),
        pytest.param(
            {"example.com/gpu": "2"},
            ["no node has any example.com/gpu, the pod requests 2"],
            id="resource of no node",
        ),
    ],
)
def test_requests_above_largest_node_are_named(requests: dict[str, str], expected: list[str]) -> None:
    nodes = [NodeInfo.of(make_node("large")), NodeInfo.of(make_node("small", allocatable={"cpu": "1"}))]
    pod = make_pod("p", containers=[{"name": "c", "resources": {"requests": requests}}])
    assert details("NodeResourcesFit", pod, *nodes) == expected


def test_at_most_three_details_are_listed() -> None:
    nodes = [NodeInfo.of(make_node(f"n{i}", taints=[{"key": f"k{i}", "effect": "NoSchedule"}])) for i in range(5)]
    assert len(details("TaintToleration", make_pod("p"), *nodes)) == 3


def anti_affinity(topology_key: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": topology_key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize(
    ("spec", "others", "helps"),
    [
        ({"affinity": anti_affinity("kubernetes.io/hostname")}, {}, True),
        ({"affinity": anti_affinity("zone")}, {}, False),
        ({}, {"affinity": anti_affinity("kubernetes.io/hostname")}, True),
        ({}, {"affinity": anti_affinity("zone")}, False),
        ({"affinity": anti_affinity("kubernetes.io/hostname")}, {"affinity": anti_affinity("zone")}, False),
    ],
    ids=["own", "own by zone", "of a pod", "of a pod by zone", "own, and of a pod by zone"],
)
def test_new_node_helps_against_anti_affinity_by_hostname(spec: Any, others: Any, helps: bool) -> None:
    other = make_pod("other", labels={"app": "web"}, **others)
    nodes = [NodeInfo.of(make_node("n0"), other)]
    (text,) = advice(["InterPodAffinity"], make_pod("p", labels={"app": "web"}, **spec), nodes)
    assert ("add a node" in text) is helps


@pytest.mark.parametrize(("topology_key", "helps"), [("kubernetes.io/hostname", True), ("zone", False)])
def test_new_node_helps_against_spread_by_hostname(topology_key: str, helps: bool) -> None:
    constraint = {"maxSkew": 1, "topologyKey": topology_key, "whenUnsatisfiable": "DoNotSchedule"}
    pod = make_pod("p", topologySpreadConstraints=[constraint])
    (text,) = advice(["PodTopologySpread"], pod, [NodeInfo.of(make_node("n0"))])
    assert ("add a node" in text) is helps


ORDERED_NODES = [
    NodeInfo.of(make_node("a", labels={"zone": "1"}, taints=[GPU])),
    NodeInfo.of(make_node("b", labels={"disk": "ssd"}, taints=[{"key": "x", "effect": "NoExecute"}])),
    NodeInfo.of(make_node("c", labels={"rack": "7"}, taints=[{"key": "b", "effect": "NoSchedule"}])),
    NodeInfo.of(make_node("d", taints=[{"key": "b", "effect": "NoSchedule"}])),
]


@given(nodes=st.permutations(ORDERED_NODES))
def test_details_with_equal_counts_do_not_depend_on_the_order_of_nodes(nodes: list[NodeInfo]) -> None:
    pod = make_pod("p", nodeSelector={"zone": "1", "rack": "7", "disk": "ssd"})
    assert details("TaintToleration", pod, *nodes) == [
        "b:NoSchedule (on 2 of 4 nodes)",
        "gpu=a100:NoSchedule (on 1 of 4 nodes)",
        "x:NoExecute (on 1 of 4 nodes)",
    ]
    assert details("NodeAffinity", pod, *nodes) == [
        "disk=ssd (on 1 of 4 nodes)",
        "rack=7 (on 1 of 4 nodes)",
        "zone=1 (on 1 of 4 nodes)",
    ]


def test_advice_for_several_plugins_leaves_out_unknown_ones() -> None:
    ports, disk = advice(["NodePorts"], make_pod("p")), advice(["VolumeZone"], make_pod("p"))
    assert len(ports) == len(disk) == 1
    assert advice(["NodePorts", "example:Mine", "VolumeZone"], make_pod("p")) == [*ports, *disk]


def test_terms_with_a_namespace_selector_are_named_without_a_count() -> None:
    """The namespaces that it selects are unknown here."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
    nodes = [NodeInfo.of(make_node("n", labels={"zone": "a"}))]
    for selector, expected in (
        ({"namespaceSelector": {}}, "affinity to app=db by zone"),
        ({}, "by zone: no such pods"),
    ):
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term | selector]}}
        (detail,) = details("InterPodAffinity", make_pod("p", affinity=affinity), *nodes)
        assert detail.endswith(expected)
