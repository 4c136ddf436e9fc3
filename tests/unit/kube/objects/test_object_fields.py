"""Fields of typed objects that many parts read."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.api_types import Condition, Job, ObjectMeta, Pod, ReplicaSet, convert
from kubeloop.kube.objects.object_fields import (
    condition_of,
    controller_of,
    is_finished,
    is_ready,
    job_finished_condition,
    replace_condition,
    replicas_of,
    zone_key,
)


def pod(phase: str = "Running", **conditions: str) -> Pod:
    stored = [{"type": type_, "status": status} for type_, status in conditions.items()]
    return convert(Pod, {"status": {"phase": phase, "conditions": stored}})


def test_condition_of_returns_the_condition_of_a_type():
    conditions = pod(PodScheduled="True", Ready="False").status.conditions
    assert condition_of(conditions, "Ready") is conditions[1]
    assert condition_of(conditions, "Initialized") is None


def test_replace_condition_keeps_the_order_and_appends_new_types():
    scheduled, ready = Condition(type="PodScheduled", status="True"), Condition(type="Ready", status="False")
    conditions = (scheduled, ready)
    changed = Condition(type="PodScheduled", status="False")
    assert replace_condition(conditions, changed) == (changed, ready)
    added = Condition(type="Initialized", status="True")
    assert replace_condition(conditions, added) == (scheduled, ready, added)


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_pod_is_ready_if_its_condition_is_true(status, ready):
    assert is_ready(pod(PodScheduled="True", Ready=status)) is ready
    assert not is_ready(pod(PodScheduled="True"))


@pytest.mark.parametrize(
    ("phase", "finished"), [("Pending", False), ("Running", False), ("Failed", True), ("Succeeded", True)]
)
def test_pod_is_finished_in_a_final_phase(phase, finished):
    assert is_finished(pod(phase)) is finished


@pytest.mark.parametrize(("spec", "replicas"), [({}, 1), ({"replicas": 0}, 0), ({"replicas": 3}, 3)])
def test_missing_replicas_count_as_one(spec, replicas):
    assert replicas_of(convert(ReplicaSet, {"spec": spec})) == replicas


def test_zone_key_is_region_and_zone_with_precedence_of_beta_labels():
    beta = {"failure-domain.beta.kubernetes.io/region": "r", "failure-domain.beta.kubernetes.io/zone": "z"}
    current = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}
    assert zone_key(current) == zone_key(beta) == zone_key({**beta, "topology.kubernetes.io/zone": "new"})
    assert zone_key({}) == ""


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param([("SuccessCriteriaMet", "True"), ("Complete", "True")], "Complete", id="complete"),
        pytest.param([("Failed", "True")], "Failed", id="failed"),
        pytest.param([("Suspended", "True"), ("Complete", "False")], None, id="running"),
    ],
)
def test_job_finished_condition(conditions: list[tuple[str, str]], expected: str | None):
    status = {"conditions": [{"type": type_, "status": value} for type_, value in conditions]}
    condition = job_finished_condition(convert(Job, {"status": status}))
    assert (condition.type if condition else None) == expected


@pytest.mark.parametrize(
    ("references", "uid"),
    [
        pytest.param([], None, id="no reference"),
        pytest.param([{"kind": "Job", "uid": "a"}], None, id="no controller"),
        pytest.param(
            [{"kind": "Job", "uid": "a", "controller": False}, {"kind": "Job", "uid": "b", "controller": True}],
            "b",
            id="second reference",
        ),
    ],
)
def test_controller_of(references, uid):
    controller = controller_of(convert(ObjectMeta, {"ownerReferences": references}))
    assert (controller and controller.uid) == uid
