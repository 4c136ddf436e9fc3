"""Status of a ReplicaSet, computed from groups of Pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.controllers.replicaset.replica_set_status import only_counts_changed, replica_set_status, turns
from kubeloop.kube.objects.api_types import Condition, Pod, ReplicaSet, ReplicaSetStatus, convert
from support.objects.pod_groups import group_pods

NOW = datetime(2026, 1, 1, 12, 0, 30, 5, tzinfo=UTC)
OLD_FAILURE = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}
OTHER_CONDITION = {"type": "Other", "status": "True"}


def replica_set(status: dict[str, Any] | None = None, **spec: Any) -> ReplicaSet:
    template = {"metadata": {"labels": {"app": "web", "tier": "1"}}}
    return convert(
        ReplicaSet,
        {"metadata": {"name": "rs", "generation": 2}, "spec": {"template": template, **spec}, "status": status or {}},
    )


def pod(name: str, labels: dict[str, str], *, ready: bool = False, since: str = "12:00:00") -> Pod:
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": f"2026-01-01T{since}Z"}] if ready else []
    metadata = {"name": name, "namespace": "ns", "labels": labels}
    return convert(Pod, {"metadata": metadata, "status": {"phase": "Running", "conditions": conditions}})


def test_counts_by_label_readiness_and_availability():
    labels = {"app": "web", "tier": "1"}
    pods = group_pods(
        [
            pod("a", {**labels, "extra": "x"}, ready=True),
            pod("b", labels, ready=True, since="12:00:25"),
            pod("c", labels),
            pod("d", {"app": "web"}, ready=True),
        ]
    )

    def counts(min_ready_seconds: int) -> tuple[int, ...]:
        rs = replica_set(minReadySeconds=min_ready_seconds)
        status = replica_set_status(rs, pods, 1, None, NOW)
        return (status.replicas, status.fully_labeled_replicas, status.ready_replicas, status.available_replicas)

    assert counts(0) == (4, 3, 3, 3)
    assert counts(10) == (4, 3, 3, 2)


@pytest.mark.parametrize(
    ("desired", "before", "failure", "after"),
    [
        pytest.param(3, [], "quota", [("ReplicaFailure", "FailedCreate", "quota")], id="create fails"),
        pytest.param(1, [], "lost", [("ReplicaFailure", "", "lost")], id="number of Pods is right"),
        pytest.param(0, [], "denied", [("ReplicaFailure", "FailedDelete", "denied")], id="delete fails"),
        pytest.param(
            3,
            [OLD_FAILURE],
            "another",
            [("ReplicaFailure", "FailedCreate", "quota")],
            id="first failure stays",
        ),
        pytest.param(3, [OTHER_CONDITION, OLD_FAILURE], None, [("Other", "", "")], id="condition removed on success"),
    ],
)
def test_replica_failure_condition(desired, before, failure, after):
    rs = replica_set(status={"conditions": before}, replicas=desired)
    status = replica_set_status(rs, group_pods([pod("a", {})]), None, failure, NOW)
    assert [(condition.type, condition.reason, condition.message) for condition in status.conditions] == after


def test_new_failure_has_time_in_whole_seconds():
    (condition,) = replica_set_status(replica_set(), {}, None, "quota", NOW).conditions
    assert condition.last_transition_time == NOW.replace(microsecond=0)


def test_status_observes_the_generation_of_the_spec():
    rs = replica_set(status={"observedGeneration": 1, "replicas": 1})
    observed = replica_set_status(rs, group_pods([pod("a", {})]), None, None, NOW)
    assert (observed.observed_generation, observed.replicas) == (2, 1)


@pytest.mark.parametrize(
    ("before", "count", "after", "expected"),
    [(0, 0, 3, False), (0, 1, 3, False), (5, 5, 3, False), (5, 4, 3, False), (3, 2, 3, True), (3, 4, 3, True)],
)
def test_count_turns_if_it_is_not_between_its_neighbours(before, count, after, expected):
    assert turns(ReplicaSetStatus(replicas=before), ReplicaSetStatus(replicas=count), after) == expected


@pytest.mark.parametrize("terminating", [None, 0, 2])
def test_status_has_the_number_of_terminating_pods(terminating):
    rs = replica_set(status={"terminatingReplicas": 7})
    assert replica_set_status(rs, {}, terminating, None, NOW).terminating_replicas == terminating


def test_pods_of_a_template_without_labels_are_fully_labeled():
    rs = convert(ReplicaSet, {"metadata": {"name": "rs"}, "spec": {"template": {}}})
    assert replica_set_status(rs, group_pods([pod("a", {})]), None, None, NOW).fully_labeled_replicas == 1


@pytest.mark.parametrize(
    ("changes", "only_counts"),
    [
        pytest.param({}, True, id="unchanged"),
        pytest.param({"replicas": 2, "fully_labeled_replicas": 2, "observed_generation": 2}, True, id="counts"),
        pytest.param({"ready_replicas": 1}, False, id="ready"),
        pytest.param({"available_replicas": 1}, False, id="available"),
        pytest.param({"conditions": (Condition(type="ReplicaFailure"),)}, False, id="conditions"),
    ],
)
def test_only_counts_changed(changes, only_counts):
    assert only_counts_changed(ReplicaSetStatus(), ReplicaSetStatus(**changes)) is only_counts
