"""Usage of objects in a ResourceQuota."""

from __future__ import annotations

from datetime import UTC, datetime

from kubeloop.kube.objects.quota_usage import matches_scopes, matching_resources, usage

POD = {"metadata": {}, "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}]}}


def amounts(kind, obj, now=None):
    return {name: quantity.canonical() for name, quantity in usage(kind, obj, now).items()}


def test_pod_counts_for_object_and_compute_resources():
    expected = {"count/pods": "1", "pods": "1", "cpu": "1", "requests.cpu": "1", "limits.memory": "1Gi"}
    assert amounts("pods", POD) == expected


def test_ended_or_overdue_pod_counts_as_object_only():
    assert amounts("pods", {**POD, "status": {"phase": "Succeeded"}}) == {"count/pods": "1"}
    overdue = {**POD, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00+00:00", "deletionGracePeriodSeconds": 30}}
    assert amounts("pods", overdue, datetime(2026, 1, 1, 0, 1, tzinfo=UTC)) == {"count/pods": "1"}
    assert "cpu" in amounts("pods", overdue, datetime(2026, 1, 1, tzinfo=UTC))


def test_service_counts_load_balancers_and_node_ports():
    service = {"spec": {"type": "LoadBalancer", "ports": [{}, {}]}}
    assert amounts("services", service) == {
        "count/services": "1",
        "services": "1",
        "services.nodeports": "2",
        "services.loadbalancers": "1",
    }


def test_claim_counts_storage_by_class():
    claim = {
        "metadata": {},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}},
    }
    assert amounts("persistentvolumeclaims", claim) == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "5Gi",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "fast.storageclass.storage.k8s.io/requests.storage": "5Gi",
    }


def test_matching_resources_are_those_of_the_kind():
    names = ["pods", "requests.cpu", "requests.example.com/gpu", "services", "count/secrets"]
    assert matching_resources("pods", names) == ["pods", "requests.cpu", "requests.example.com/gpu"]
    assert matching_resources("secrets", names) == ["count/secrets"]


def test_scopes_select_pods():
    best_effort = {"spec": {"containers": [{}]}}
    assert matches_scopes({"scopes": ["BestEffort"]}, "pods", best_effort)
    assert not matches_scopes({"scopes": ["BestEffort"]}, "pods", POD)
    assert not matches_scopes({"scopes": ["BestEffort"]}, "services", {})
