"""Usage of objects in a ResourceQuota."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubeloop.kube.objects.quota_usage import DeviceQuota, matches_scopes, matching_resources, usage

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


def test_resource_claim_counts_the_most_devices_of_each_class():
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "gpu", "count": 2}},
        {"name": "b", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount"}},
        {"name": "c", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
        {"name": "d", "firstAvailable": [{"deviceClassName": "gpu", "count": 3}, {"deviceClassName": "gpu"}]},
        {"name": "e", "exactly": {"deviceClassName": "tpu", "allocationMode": "Later", "count": 5}},
    ]
    claim = {"metadata": {}, "spec": {"devices": {"requests": requests}}}
    assert amounts("resourceclaims.resource.k8s.io", claim) == {
        "count/resourceclaims.resource.k8s.io": "1",
        "gpu.deviceclass.resource.k8s.io/devices": "6",
        "nic.deviceclass.resource.k8s.io/devices": "32",
        "tpu.deviceclass.resource.k8s.io/devices": "0",
    }
    names = ["gpu.deviceclass.resource.k8s.io/devices", "count/pods"]
    assert matching_resources("resourceclaims.resource.k8s.io", names) == names[:1]


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
GPUS = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 3}}
BY_POD = {"requests.example.com/gpu": "1", "requests.deviceclass.resource.kubernetes.io/gpu": "3"}
ALL = dict.fromkeys(BY_POD, "3")


@pytest.mark.parametrize(
    ("annotated", "pod", "others", "expected"),
    [
        pytest.param(False, {}, [], ALL, id="claim of a user"),
        pytest.param(True, {}, [], BY_POD, id="claim for extended resources"),
        pytest.param(True, {"name": "special"}, [], BY_POD, id="named by its pod"),
        pytest.param(True, {"name": "other"}, [], ALL, id="not named by its pod"),
        pytest.param(True, {"uid": "v"}, [], ALL, id="of another pod"),
        pytest.param(True, {}, ["earlier"], ALL, id="not the first claim of its pod"),
        pytest.param(True, {}, ["special", "tardy"], BY_POD, id="the first claim of its pod"),
    ],
)
def test_claim_counts_for_extended_resources(annotated, pod, others, expected):
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"} if annotated else {}
    claim = {
        "metadata": {"name": "special", "annotations": annotations, "ownerReferences": [OWNER]},
        "spec": {"devices": {"requests": [GPUS]}},
    }
    status = {"extendedResourceClaimStatus": {"resourceClaimName": pod["name"]}} if "name" in pod else {}
    owner = {
        "metadata": {"uid": pod.get("uid", "u")},
        "spec": {"containers": [{"resources": {"requests": {"example.com/gpu": "2"}}}]},
        "status": status,
    }
    devices = DeviceQuota(
        {"gpu": "example.com/gpu"}, lambda name: owner, lambda uid: [{"metadata": {"name": name}} for name in others]
    )
    amounts = usage("resourceclaims.resource.k8s.io", claim, devices=devices)
    counted = {name: amount.canonical() for name, amount in amounts.items() if name.startswith("requests.")}
    assert counted == expected


def test_claims_match_extended_resources_of_classes():
    devices = DeviceQuota({"gpu": "example.com/gpu", "nic": ""}, lambda name: None, lambda uid: [])
    names = [f"requests.{name}" for name in ("example.com/gpu", "example.com/none", "cpu")]
    names += [f"requests.deviceclass.resource.kubernetes.io/{name}" for name in ("gpu", "nic", "none")]
    assert matching_resources("resourceclaims.resource.k8s.io", names, devices) == [names[0], names[3], names[4]]


def test_implicit_extended_resource_of_a_class_counts_for_pods():
    name = "deviceclass.resource.kubernetes.io/gpu"
    pod = {"metadata": {}, "spec": {"containers": [{"resources": {"requests": {name: "2", "kubernetes.io/x": "1"}}}]}}
    assert amounts("pods", pod) == {"count/pods": "1", "pods": "1", f"requests.{name}": "2"}
    assert matching_resources("pods", [f"requests.{name}", "requests.kubernetes.io/x"]) == [f"requests.{name}"]


def test_matching_resources_are_those_of_the_kind():
    names = ["pods", "requests.cpu", "requests.example.com/gpu", "services", "count/secrets"]
    assert matching_resources("pods", names) == ["pods", "requests.cpu", "requests.example.com/gpu"]
    assert matching_resources("secrets", names) == ["count/secrets"]


def test_scopes_select_pods():
    best_effort = {"spec": {"containers": [{}]}}
    assert matches_scopes({"scopes": ["BestEffort"]}, "pods", best_effort)
    assert not matches_scopes({"scopes": ["BestEffort"]}, "pods", POD)
    assert not matches_scopes({"scopes": ["BestEffort"]}, "services", {})
