"""Pod groups, updated by random events, and the plans and Pods that ReplicaSets create."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controllers.replicaset.pod_groups import PodGroups, group_pods
from kubeloop.controllers.replicaset.replica_plan import ReplicaPlan, generate_name, plan_replicas, pod_from_template
from kubeloop.controllers.replicaset.replication_controllers import as_replica_set
from kubeloop.controllers.runtime.owner_references import controller_index_key
from kubeloop.kube.objects.api_types import Pod, ReplicaSet, ReplicationController, convert

NOW = "2026-01-01T01:00:00Z"


def pod(name: str = "p", *, owner: str = "", ready: bool = False, **more: Any) -> Pod:
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": name, "labels": more.get("labels", {"a": "1"})}
    if owner:
        kind, uid = owner.split("/")
        metadata["ownerReferences"] = [{"kind": kind, "name": "rs", "uid": uid, "controller": True}]
    if more.get("deleted"):
        metadata["deletionTimestamp"] = NOW
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": more.get("since", NOW)}] if ready else []
    return convert(
        Pod, {"metadata": metadata, "status": {"phase": more.get("phase", "Running"), "conditions": conditions}}
    )


pods = st.builds(
    pod,
    st.sampled_from("pqrst"),
    owner=st.sampled_from(["", "ReplicaSet/u1", "ReplicaSet/u2", "Job/u3"]),
    ready=st.booleans(),
    deleted=st.booleans(),
    phase=st.sampled_from(["Pending", "Running", "Failed", "Succeeded"]),
    labels=st.sampled_from([{}, {"a": "1"}, {"a": "2"}]),
)


@given(events=st.lists(st.tuples(pods, st.booleans()), max_size=30))
def test_pod_groups_match_pods_after_any_events(events):
    groups = PodGroups("ReplicaSet")
    current: dict[str, Pod] = {}
    for new, removed in events:
        old = current.get(new.key)
        if removed:
            if old is not None:
                groups.remove(old)
                del current[new.key]
        elif old is None:
            groups.add(new)
            current[new.key] = new
        else:
            groups.update(old, new)
            current[new.key] = new
        groups.check(current.values())
        orphans = [orphan for orphan in current.values() if not orphan.metadata.owner_references]
        assert groups.get("ns") == group_pods(orphans)


def replica_set(replicas: int) -> ReplicaSet:
    return convert(
        ReplicaSet,
        {
            "kind": "ReplicaSet",
            "apiVersion": "apps/v1",
            "metadata": {"name": "rs", "namespace": "ns", "uid": "u1"},
            "spec": {
                "replicas": replicas,
                "template": {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": []}},
            },
        },
    )


def test_plan_creates_or_deletes_difference_up_to_burst():
    some = group_pods(pod(f"p{number}", owner="ReplicaSet/u1") for number in range(3))

    def plan(replicas: int, burst: int = 500) -> ReplicaPlan:
        return plan_replicas(replica_set(replicas), some, dict, datetime(2026, 1, 2, tzinfo=UTC), burst=burst)

    assert plan(3) == ReplicaPlan()
    assert plan(5) == ReplicaPlan(create=2)
    assert plan(900) == ReplicaPlan(create=500)
    assert len(plan(1).delete) == 2
    assert len(plan(0, burst=2).delete) == 2


def test_generate_name_has_dash_if_valid():
    assert generate_name("web-1") == "web-1-"
    assert generate_name("n" * 253) == "n" * 253 + "-"
    assert generate_name("n" * 254) == "n" * 254
    assert generate_name("No_Pod") == "No_Pod"


def test_pod_from_template_has_owner_reference_and_labels():
    body = pod_from_template(replica_set(1))
    reference = body["metadata"]["ownerReferences"][0]
    assert (reference["kind"], reference["uid"], reference["controller"]) == ("ReplicaSet", "u1", True)
    assert body["metadata"]["labels"] == {"a": "1"}
    assert "namespace" not in body["metadata"]


def test_replication_controller_converts_and_keeps_its_kind():
    rc = convert(
        ReplicationController,
        {
            "kind": "ReplicationController",
            "apiVersion": "v1",
            "metadata": {"name": "rc", "namespace": "ns", "uid": "u9"},
            "spec": {"replicas": 2, "selector": {"a": "1"}, "template": {"metadata": {"labels": {"a": "1"}}}},
            "status": {"replicas": 1},
        },
    )
    rs = as_replica_set(rc)
    assert (rs.kind, rs.api_version, rs.spec.replicas, rs.status.replicas) == ("ReplicationController", "v1", 2, 1)
    assert rs.spec.selector is not None
    assert rs.spec.selector.match_labels == {"a": "1"}
    assert controller_index_key(rs) == "ns/ReplicationController/rc/u9"
    assert pod_from_template(rs)["metadata"]["ownerReferences"][0]["apiVersion"] == "v1"
