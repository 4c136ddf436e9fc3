"""Conditions of `wait_for`."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.testing.wait_conditions import parse_condition
from support.objects.manifests import OBSERVED_POD

POD = OBSERVED_POD


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
    holds = parse_condition(condition).holds
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
    assert [parse_condition(text).holds(sts) for text in ("ready", "complete")] == [ready, complete]


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
    assert [parse_condition(text).holds(agent) for text in ("ready", "complete")] == [ready, complete]


@pytest.mark.parametrize("text", ["", "is it ready?", "{.spec.containers[*].name}=a"])
def test_parse_condition_rejects_invalid_text(text: str):
    with pytest.raises(UserError):
        parse_condition(text)


@pytest.mark.parametrize(
    ("condition", "complete"), [("Complete", True), ("SuccessCriteriaMet", False), ("Failed", False)]
)
def test_job_is_complete_when_it_has_succeeded(condition: str, complete: bool):
    job = {"kind": "Job", "metadata": {}, "status": {"conditions": [{"type": condition, "status": "True"}]}}
    assert parse_condition("complete").holds(job) is complete


@pytest.mark.parametrize(("status", "complete"), [("True", True), ("False", False)])
def test_pod_group_is_complete_when_it_has_been_scheduled(status: str, complete: bool):
    pod_group = {
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        "status": {"conditions": [{"type": "PodGroupScheduled", "status": status}]},
    }
    assert parse_condition("complete").holds(pod_group) is complete


def job(condition: str, **metadata: Any) -> dict[str, Any]:
    conditions = [{"type": condition, "status": "True", "reason": "R", "message": "m"}]
    return {"kind": "Job", "metadata": metadata, "status": {"conditions": conditions}}


def pod(phase: str, **metadata: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": metadata, "status": {"phase": phase, "reason": "Evicted"}}


LATE = {
    "kind": "Deployment",
    "metadata": {},
    "status": {"conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded", "message": "m"}]},
}
DELETION = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
OWNED = {"ownerReferences": [{"kind": "StatefulSet", "name": "db", "controller": True}]}


@pytest.mark.parametrize(
    ("condition", "obj", "reason"),
    [
        pytest.param("complete", job("Failed"), "it is Failed: R: m", id="failed Job"),
        pytest.param("condition=Complete", job("Failed"), "it is Failed: R: m", id="failed Job by kubectl's notation"),
        pytest.param("Failed", job("Complete"), "it is Complete: R: m", id="succeeded Job"),
        pytest.param("Failed=False", job("Complete"), "", id="another status"),
        pytest.param("complete", job("FailureTarget"), "", id="Job whose pods still run"),
        pytest.param("complete", job("Failed", **DELETION), "", id="Job in deletion"),
        pytest.param("Suspended", job("Failed"), "", id="another condition"),
        pytest.param("complete", pod("Failed"), "it has failed: Evicted", id="failed pod"),
        pytest.param("ready", pod("Failed"), "it has failed: Evicted", id="failed pod is never ready"),
        pytest.param("Ready", pod("Succeeded"), "it has succeeded", id="succeeded pod is never ready"),
        pytest.param("{.status.phase}=Running", pod("Failed"), "it has failed: Evicted", id="failed pod never runs"),
        pytest.param("{.status.podIP}", pod("Failed"), "", id="another field"),
        pytest.param("ready", pod("Pending"), "", id="pending pod"),
        pytest.param("ready", pod("Failed", **OWNED), "", id="pod that a controller may replace"),
        pytest.param("complete", LATE, "ProgressDeadlineExceeded: m", id="late Deployment"),
        pytest.param("Available", LATE, "", id="late Deployment may become available"),
        pytest.param("complete", None, "", id="no object"),
        pytest.param("delete", pod("Failed"), "", id="deletion"),
    ],
)
def test_condition_that_will_never_be_met_has_a_reason(condition: str, obj: dict[str, Any] | None, reason: str):
    parsed = parse_condition(condition)
    assert not parsed.holds(obj)
    assert parsed.why_never(obj) == reason
