"""Taints by the conditions of a node, taints for evictions, and labels."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubeloop.controllers.nodelifecycle.node_taints import (
    NOT_READY,
    UNREACHABLE,
    eviction_taint_key,
    has_eviction_taint,
    has_taint,
    missing_labels,
    with_condition_taints,
    with_eviction_taint,
    without_eviction_taints,
)
from kubeloop.kube.objects.api_types import Condition, Node, NodeSpec, NodeStatus, Taint

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWN = Taint(key="dedicated", effect="NoSchedule")


def node(*taints: Taint, condition: tuple[str, str] = ("Ready", "True"), unschedulable: bool = False) -> Node:
    conditions = (Condition(type=condition[0], status=condition[1]),)
    spec = NodeSpec(taints=taints, unschedulable=unschedulable)
    return Node(spec=spec, status=NodeStatus(conditions=conditions))


@pytest.mark.parametrize(
    ("condition", "key"),
    [
        (("Ready", "False"), "not-ready"),
        (("Ready", "Unknown"), "unreachable"),
        (("MemoryPressure", "True"), "memory-pressure"),
        (("DiskPressure", "True"), "disk-pressure"),
        (("PIDPressure", "True"), "pid-pressure"),
        (("NetworkUnavailable", "True"), "network-unavailable"),
    ],
)
def test_condition_sets_its_taint_until_it_ends(condition: tuple[str, str], key: str):
    taint = Taint(key=f"node.kubernetes.io/{key}", effect="NoSchedule", time_added=NOW)
    assert with_condition_taints(node(OWN, condition=condition), NOW) == (OWN, taint)
    assert with_condition_taints(node(OWN, taint, condition=condition), NOW) is None
    assert with_condition_taints(node(taint, OWN), NOW) == (OWN,)


def test_cordoned_node_gets_the_taint_unschedulable():
    taint = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule", time_added=NOW)
    assert with_condition_taints(node(unschedulable=True), NOW) == (taint,)


@pytest.mark.parametrize("effect", ["NoExecute", "PreferNoSchedule"])
def test_taints_of_other_effects_are_unchanged(effect: str):
    assert with_condition_taints(node(Taint(key=NOT_READY, effect=effect)), NOW) is None


def test_eviction_taints_replace_each_other():
    first = with_eviction_taint([OWN], NOT_READY, NOW)
    assert first == (OWN, Taint(key=NOT_READY, effect="NoExecute", time_added=NOW))
    second = with_eviction_taint(first, UNREACHABLE, NOW)
    assert second == (OWN, Taint(key=UNREACHABLE, effect="NoExecute", time_added=NOW))
    assert without_eviction_taints(second) == (OWN,)


@pytest.mark.parametrize(
    ("taint", "expected"),
    [(Taint(key=NOT_READY, effect="NoExecute"), True), (Taint(key=NOT_READY, effect="NoSchedule"), False)],
    ids=["NoExecute", "NoSchedule"],
)
def test_eviction_taint_has_the_effect_no_execute(taint: Taint, expected: bool):
    assert has_eviction_taint(node(OWN, taint)) is expected
    assert has_taint(node(OWN, taint), NOT_READY, "NoExecute") is expected


@pytest.mark.parametrize(
    ("ready", "key"), [("True", None), ("False", "node.kubernetes.io/not-ready"), ("Unknown", UNREACHABLE)]
)
def test_eviction_taint_key(ready: str, key: str | None):
    assert eviction_taint_key(ready) == key


def test_beta_labels_follow_the_stable_ones():
    assert missing_labels({"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "windows"}) == {
        "beta.kubernetes.io/os": "linux"
    }
    assert missing_labels({"kubernetes.io/arch": "arm64"}) == {"beta.kubernetes.io/arch": "arm64"}
    assert missing_labels({"beta.kubernetes.io/os": "linux"}) == {}
