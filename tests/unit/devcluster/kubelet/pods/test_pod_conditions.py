"""Conditions of a pod: Ready by containers and readiness gates, and those of resizes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kubelet.containers.container_run import ContainerRun
from kubeloop.devcluster.kubelet.pods.pod_conditions import (
    RESIZE_PENDING,
    Resize,
    pod_conditions,
    rejected_conditions,
)

JSON = dict[str, Any]
EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"
READY = ContainerRun("web", "nginx", "main", state="running", started=True, ready=True)
UNREADY = ContainerRun("log", "nginx", "main", state="running", started=True)
MIGRATE = ContainerRun("migrate", "app", "init")
SIDECAR = ContainerRun("proxy", "app", "sidecar")


def pod(*existing: JSON, **spec: Any) -> JSON:
    metadata = {"name": "web", "namespace": "default", "uid": "uid-web", "generation": 3}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": existing}}


def conditions(obj: JSON, *runs: ContainerRun, phase: str = "Running", **fields: Any) -> dict[str, JSON]:
    arguments: JSON = {"now": NOW, "has_network": True, "resizes": (), **fields}
    return {condition["type"]: condition for condition in pod_conditions(obj, runs, phase, **arguments)}


def summary(result: dict[str, JSON], type_: str) -> tuple[str, str, str]:
    condition = result[type_]
    return condition["status"], condition.get("reason", ""), condition.get("message", "")


@pytest.mark.parametrize(
    ("runs", "phase", "ready", "containers_ready"),
    [
        pytest.param([READY], "Running", ("True", "", ""), ("True", "", ""), id="ready"),
        pytest.param(
            [READY, UNREADY],
            "Running",
            ("False", "ContainersNotReady", "containers with unready status: [log]"),
            ("False", "ContainersNotReady", "containers with unready status: [log]"),
            id="one container is not ready",
        ),
        pytest.param([READY], "Succeeded", *[("False", "PodCompleted", "")] * 2, id="completed"),
        pytest.param([READY], "Failed", *[("False", "PodFailed", "")] * 2, id="failed"),
    ],
)
def test_ready_by_containers_and_phase(runs, phase, ready, containers_ready):
    result = conditions(pod(), *runs, phase=phase)
    assert (summary(result, "Ready"), summary(result, "ContainersReady")) == (ready, containers_ready)
    assert result["PodReadyToStartContainers"]["status"] == ("True" if phase == "Running" else "False")


def test_ready_names_each_readiness_gate_that_is_not_true():
    gates = [{"conditionType": type_} for type_ in ("lb", "dns", "quota")]
    existing = ({"type": "dns", "status": "False"}, {"type": "quota", "status": "True"})
    result = conditions(pod(*existing, readinessGates=gates), READY)
    missing = 'corresponding condition of pod readiness gate "lb" does not exist.'
    false = 'the status of pod readiness gate "dns" is not "True", but False'
    assert summary(result, "Ready") == ("False", "ReadinessGatesNotReady", f"{missing}, {false}")
    assert summary(result, "ContainersReady") == ("True", "", "")


@pytest.mark.parametrize(
    ("runs", "phase", "expected"),
    [
        pytest.param(
            [MIGRATE, SIDECAR, ContainerRun("web", "nginx", "main")],
            "Pending",
            ("False", "ContainersNotInitialized", "containers with incomplete status: [migrate proxy]"),
            id="initialising",
        ),
        pytest.param([SIDECAR, READY], "Running", ("True", "", ""), id="a sidecar that restarts"),
        pytest.param([READY], "Succeeded", ("True", "PodCompleted", ""), id="completed"),
    ],
)
def test_initialized(runs, phase, expected):
    assert summary(conditions(pod(), *runs, phase=phase), "Initialized") == expected


def test_transition_time_changes_with_the_status_only():
    existing = [{"type": "Ready", "status": "True", "lastTransitionTime": EARLIER}]
    existing += [{"type": "Initialized", "status": "False", "lastTransitionTime": EARLIER}]
    result = conditions(pod(*existing), READY)
    assert (result["Ready"]["lastTransitionTime"], result["Initialized"]["lastTransitionTime"]) == (EARLIER, NOW)
    assert {condition["observedGeneration"] for condition in result.values()} == {3}


def test_conditions_of_other_writers_are_unchanged():
    other = {"type": "example.com/other", "status": "Unknown"}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": EARLIER}
    result = conditions(pod(other, scheduled), READY)
    assert (result["example.com/other"], result["PodScheduled"]) == (other, scheduled)
    assert conditions(pod(), READY)["PodScheduled"]["status"] == "True"


def test_resize_condition_has_generation_of_its_spec_and_time_of_its_reason():
    deferred = Resize(RESIZE_PENDING, 2, "Deferred", "no cpu")
    (first,) = [conditions(pod(), READY, resizes=[deferred])[RESIZE_PENDING]]
    assert (first["reason"], first["observedGeneration"], first["lastTransitionTime"]) == ("Deferred", 2, NOW)
    earlier = {**first, "lastTransitionTime": EARLIER}
    unchanged = conditions(pod(earlier), READY, resizes=[deferred])[RESIZE_PENDING]
    infeasible = conditions(pod(earlier), READY, resizes=[deferred._replace(reason="Infeasible")])[RESIZE_PENDING]
    assert (unchanged["lastTransitionTime"], infeasible["lastTransitionTime"]) == (EARLIER, NOW)
    assert RESIZE_PENDING not in conditions(pod(earlier), READY)
    assert RESIZE_PENDING not in conditions(pod(), READY, phase="Failed", resizes=[deferred])


def test_conditions_of_rejected_pod():
    result = {condition["type"]: condition for condition in rejected_conditions(pod(), now=NOW)}
    assert {type_: summary(result, type_) for type_ in result} == {
        "Ready": ("False", "PodFailed", ""),
        "ContainersReady": ("False", "PodFailed", ""),
    }
