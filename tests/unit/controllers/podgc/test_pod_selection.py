"""Which Pods the Pod garbage collector deletes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.podgc.pod_selection import (
    OUT_OF_SERVICE,
    pods_on_out_of_service_nodes,
    surplus_terminated_pods,
    unscheduled_terminating_pods,
)
from kubeloop.kube.objects.api_types import Node, Pod, convert


def pod(
    name: str, *, phase: str = "Running", node: str = "n", terminating: bool = False, day: int = 1, reason: str = ""
) -> Pod:
    metadata: dict[str, Any] = {"name": name, "creationTimestamp": f"2026-01-0{day}T00:00:00Z"}
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-09T00:00:00Z"
    status = {"phase": phase, "reason": reason}
    return convert(Pod, {"metadata": metadata, "spec": {"nodeName": node}, "status": status})


def names(pods: list[Pod]) -> list[str]:
    return [pod.metadata.name for pod in pods]


TERMINATED = [
    pod("newest", phase="Succeeded", day=4),
    pod("old", phase="Succeeded", day=2),
    pod("old-too", phase="Failed", day=2),
    pod("evicted", phase="Failed", day=3, reason="Evicted"),
    pod("running", day=1),
]


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        pytest.param(4, [], id="as many as allowed"),
        pytest.param(1, ["evicted", "old", "old-too"], id="evicted first, then the oldest"),
        pytest.param(0, [], id="no limit"),
    ],
)
def test_surplus_terminated_pods(threshold, expected):
    assert names(surplus_terminated_pods(TERMINATED, threshold)) == expected


@pytest.mark.parametrize(
    ("taints", "ready", "expected"),
    [
        pytest.param([{"key": OUT_OF_SERVICE}], "Unknown", ["terminating"], id="tainted and not ready"),
        pytest.param([{"key": OUT_OF_SERVICE}], "True", [], id="tainted but ready"),
        pytest.param([], "Unknown", [], id="not tainted"),
    ],
)
def test_pods_on_out_of_service_nodes(taints, ready, expected):
    conditions = [{"type": "Ready", "status": ready}]
    nodes = {"n": convert(Node, {"spec": {"taints": taints}, "status": {"conditions": conditions}})}
    pods = [pod("terminating", terminating=True), pod("running"), pod("elsewhere", node="missing", terminating=True)]
    assert names(pods_on_out_of_service_nodes(pods, nodes.get)) == expected


def test_unscheduled_terminating_pods_have_no_node():
    pods = [pod("a", node="", terminating=True), pod("b", node=""), pod("c", terminating=True)]
    assert names(unscheduled_terminating_pods(pods)) == ["a"]
