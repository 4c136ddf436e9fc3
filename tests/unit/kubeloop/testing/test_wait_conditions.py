"""Conditions of `wait_for`."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.errors import UserError
from kubeloop.testing.wait_conditions import parse_condition

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one", "generation": 2},
    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    "status": {
        "phase": "Running",
        "observedGeneration": 2,
        "conditions": [
            {"type": "Ready", "status": "True", "observedGeneration": 2},
            {"type": "Old", "status": "True", "observedGeneration": 1},
            {"type": "PodScheduled", "status": "False"},
        ],
    },
}


@pytest.mark.parametrize(
    ("condition", "of_the_pod", "of_none"),
    [
        pytest.param("Ready", True, False, id="a condition"),
        pytest.param("condition=ready", True, False, id="as kubectl writes it, in any case"),
        pytest.param("Ready=False", False, False, id="another status"),
        pytest.param("PodScheduled=False", True, False, id="a false one"),
        pytest.param("Old", False, False, id="of an older generation"),
        pytest.param("create", True, False, id="there"),
        pytest.param("delete", False, True, id="gone"),
        pytest.param("complete", True, False, id="a pod is complete when it is ready"),
        pytest.param("ready", True, False, id="a pod is ready by its condition"),
        pytest.param("{.status.phase}=Running", True, False, id="a field"),
        pytest.param("jsonpath='{.status.phase}'=Pending", False, False, id="a field that differs"),
        pytest.param("{.spec.containers[0].image}=app:1", True, False, id="a field in a list"),
        pytest.param("{.status.podIP}", False, False, id="a field that is not there"),
        pytest.param(lambda pod: pod["status"]["phase"] == "Running", True, False, id="a function"),
        pytest.param(lambda pod: pod["status"]["podIP"], False, False, id="a function that finds no field"),
    ],
)
def test_parse_condition(condition: Any, of_the_pod: bool, of_none: bool):
    holds, _ = parse_condition(condition)
    assert holds(POD) is of_the_pod
    assert holds(None) is of_none


@pytest.mark.parametrize(
    ("counts", "ready", "complete"),
    [
        pytest.param({}, True, True, id="all"),
        pytest.param({"availableReplicas": 1}, True, False, id="not available yet"),
        pytest.param({"readyReplicas": 1, "availableReplicas": 1}, False, False, id="not ready"),
        pytest.param({"observedGeneration": 1}, False, False, id="older generation"),
        pytest.param({"updatedReplicas": 1}, True, False, id="not updated"),
    ],
)
def test_ready_and_complete_of_a_stateful_set(counts: dict[str, int], ready: bool, complete: bool):
    all_counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), 2)
    sts = {
        "kind": "StatefulSet",
        "metadata": {"name": "db", "generation": 2},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 2, **all_counts, **counts},
    }
    assert [parse_condition(text)[0](sts) for text in ("ready", "complete")] == [ready, complete]


@pytest.mark.parametrize(
    ("counts", "ready", "complete"),
    [
        pytest.param({}, True, True, id="all"),
        pytest.param({"numberAvailable": 1}, True, False, id="not available yet"),
        pytest.param({"numberReady": 1, "numberAvailable": 1}, False, False, id="not ready"),
        pytest.param({"observedGeneration": 1}, False, False, id="older generation"),
        pytest.param({"updatedNumberScheduled": 1}, True, False, id="not updated"),
    ],
)
def test_ready_and_complete_of_a_daemon_set(counts: dict[str, int], ready: bool, complete: bool):
    fields = ("desiredNumberScheduled", "numberReady", "numberAvailable", "updatedNumberScheduled")
    status = {"observedGeneration": 2, **dict.fromkeys(fields, 2), **counts}
    agent = {"kind": "DaemonSet", "metadata": {"name": "agent", "generation": 2}, "spec": {}, "status": status}
    assert [parse_condition(text)[0](agent) for text in ("ready", "complete")] == [ready, complete]


@pytest.mark.parametrize("text", ["", "is it ready?", "{.spec.containers[*].name}=a"])
def test_parse_condition_rejects_invalid_text(text: str):
    with pytest.raises(UserError):
        parse_condition(text)


@pytest.mark.parametrize(
    ("condition", "complete"), [("Complete", True), ("SuccessCriteriaMet", False), ("Failed", False)]
)
def test_job_is_complete_when_it_has_succeeded(condition: str, complete: bool):
    job = {"kind": "Job", "metadata": {}, "status": {"conditions": [{"type": condition, "status": "True"}]}}
    holds, _ = parse_condition("complete")
    assert holds(job) is complete
