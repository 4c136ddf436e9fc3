"""Plans of a ReplicaSet's reconcile."""

from __future__ import annotations

from datetime import UTC, datetime

from kubeloop.controllers.replicaset.replica_plan import ReplicaPlan, plan_replicas
from kubeloop.kube.objects.api_types import Pod, ReplicaSet, convert
from support.objects.pod_groups import group_pods


def replica_set(replicas: int) -> ReplicaSet:
    return convert(
        ReplicaSet,
        {
            "kind": "ReplicaSet",
            "apiVersion": "apps/v1",
            "metadata": {"name": "rs", "namespace": "ns", "uid": "u1"},
            "spec": {"replicas": replicas},
        },
    )


def test_plan_creates_or_deletes_difference_up_to_burst():
    pods = [convert(Pod, {"metadata": {"name": name, "namespace": "ns", "uid": name}}) for name in ("a", "b", "c")]
    groups = group_pods(pods)

    def plan(replicas: int, burst: int = 500) -> ReplicaPlan:
        return plan_replicas(replica_set(replicas), groups, dict, datetime(2026, 1, 2, tzinfo=UTC), burst=burst)

    assert plan(3) == ReplicaPlan()
    assert not plan(3).has_changes
    assert plan(4).has_changes
    assert plan(2).has_changes
    assert plan(5) == ReplicaPlan(create=2)
    assert plan(900) == ReplicaPlan(create=500)
    assert len(plan(1).delete) == 2
    assert len(plan(0, burst=2).delete) == 2
