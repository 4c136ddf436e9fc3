"""Plans of a ReplicaSet's reconcile, and the Pods that it creates."""

from __future__ import annotations

from datetime import UTC, datetime

from kubeloop.controllers.replicaset.replica_plan import ReplicaPlan, generate_name, plan_replicas, pod_from_template
from kubeloop.kube.objects.api_types import Pod, ReplicaSet, convert
from support.pod_groups import group_pods


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
    pods = [convert(Pod, {"metadata": {"name": name, "namespace": "ns", "uid": name}}) for name in ("a", "b", "c")]
    groups = group_pods(pods)

    def plan(replicas: int, burst: int = 500) -> ReplicaPlan:
        return plan_replicas(replica_set(replicas), groups, dict, datetime(2026, 1, 2, tzinfo=UTC), burst=burst)

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
