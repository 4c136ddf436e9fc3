"""Which deletions of controlled pods are of users: those that their controller has no reason for."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kubeloop.recording.changes import RecordedChange, key_of
from kubeloop.replay.pod_deletions import SETTLE_SECONDS, PodDeletions

JSON = dict[str, Any]
GONE = object()


def change(seconds: float, resource: str, obj: JSON, type_: Any = "MODIFIED") -> RecordedChange:
    return RecordedChange(seconds, type_, resource, key_of(obj), obj)


def owner(kind: str, *, update: str = "2", **spec: Any) -> JSON:
    metadata = {"name": "db", "namespace": "default", "uid": "owner"}
    return {"kind": kind, "metadata": metadata, "spec": {"replicas": 2, **spec}, "status": {"updateRevision": update}}


def pod(name: str, *, phase: str = "Running", reason: str = "", **metadata: Any) -> JSON:
    reference = {"kind": "StatefulSet", "apiVersion": "apps/v1", "name": "db", "uid": "owner", "controller": True}
    head = {"name": name, "namespace": "default", "uid": name, "ownerReferences": [reference]}
    head["labels"] = {"controller-revision-hash": "2"}
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": reason}] if reason else []
    return {"metadata": {**head, **metadata}, "spec": {}, "status": {"phase": phase, "conditions": conditions}}


def deletions_of_users(kind: str, first: JSON, later: Any, deleted: JSON) -> list[str]:
    """Return the pods that users deleted: the owner has two pods, and changes one second after the deletion."""
    resource = "statefulsets.apps" if kind == "StatefulSet" else "replicasets.apps"
    deletions = PodDeletions()
    deletions.read(change(0.0, resource, first, "ADDED"))
    for name in ("db-0", "db-1"):
        deletions.read(change(1.0, "pods", pod(name), "ADDED"))
    stopped = {**deleted, "metadata": {**deleted["metadata"], "deletionTimestamp": "t"}}
    deletions.read(change(2.0, "pods", stopped))
    deletions.read(change(2.1, "pods", stopped))  # counted once
    if later is GONE:
        deletions.read(change(3.0, resource, first, "DELETED"))
    elif later is not None:
        deletions.read(change(3.0, resource, later))
    assert list(deletions.decided(2.0 + SETTLE_SECONDS - 0.1)) == []
    return [deletion.pod["metadata"]["name"] for deletion in deletions.decided(2.0 + SETTLE_SECONDS)]


@pytest.mark.parametrize(
    ("kind", "first", "later", "is_user"),
    [
        pytest.param("ReplicaSet", {}, None, True, id="as many as desired"),
        pytest.param("ReplicaSet", {"replicas": 1}, None, False, id="too many"),
        pytest.param("ReplicaSet", {}, {"replicas": 1}, False, id="too many, seen later"),
        pytest.param("ReplicaSet", {}, GONE, False, id="owner deleted"),
        pytest.param("StatefulSet", {}, None, True, id="set: as desired"),
        pytest.param("StatefulSet", {"replicas": 1}, None, False, id="set: ordinal too high"),
        pytest.param("StatefulSet", {"ordinals": {"start": 2}}, None, False, id="set: ordinal too low"),
        pytest.param("StatefulSet", {}, {"update": "3"}, False, id="set: old revision, seen later"),
        pytest.param(
            "StatefulSet", {"update": "3", "updateStrategy": {"type": "OnDelete"}}, None, True, id="set: OnDelete"
        ),
    ],
)
def test_deletion_is_of_a_user_if_the_owner_has_no_reason(kind: str, first: JSON, later: Any, is_user: bool):
    changed = owner(kind, **later) if isinstance(later, dict) else later
    assert deletions_of_users(kind, owner(kind, **first), changed, pod("db-1")) == (["db-1"] if is_user else [])


@pytest.mark.parametrize(
    "deleted",
    [
        pytest.param(pod("db-1", phase="Failed"), id="ended"),
        pytest.param(pod("db-1", reason="Preemption"), id="disrupted"),
    ],
)
def test_deletion_of_an_ended_or_disrupted_pod_is_not_of_a_user(deleted: JSON):
    assert deletions_of_users("StatefulSet", owner("StatefulSet"), None, deleted) == []


def test_owner_in_deletion_and_unknown_owner_explain_a_deletion():
    stopped = owner("ReplicaSet")
    stopped["metadata"]["deletionTimestamp"] = "t"
    assert deletions_of_users("ReplicaSet", stopped, None, pod("db-1")) == []
    deletions = PodDeletions()
    deletions.read(change(1.0, "pods", pod("db-1"), "ADDED"))
    deletions.read(change(2.0, "pods", pod("db-1", deletionTimestamp="t")))
    assert list(deletions.decided(math.inf)) == []
