"""Changes that can free usage, and the status patch of a ResourceQuota."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.controllers.resourcequota.usage_calculation import can_free_usage, status_patch
from kubeloop.kube.objects.api_types import Pod, ResourceQuota, Service, convert
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
from kubeloop.kube.values.quantities import parse_quantity


def test_status_patch_keeps_unknown_and_drops_unlimited_names():
    quota = convert(
        ResourceQuota,
        {
            "spec": {"hard": {"pods": "2", "secrets": "1"}},
            "status": {"hard": {"secrets": "1", "services": "1"}, "used": {"secrets": "1", "services": "1"}},
        },
    )
    assert status_patch(quota, {"pods": parse_quantity(1)}) == {
        "hard": {"pods": "2", "secrets": "1", "services": None},
        "used": {"pods": "1", "secrets": "1", "services": None},
    }


def test_status_patch_keeps_greater_usage_unless_it_may_decrease():
    amounts = {"pods": "9", "secrets": "9"}
    status = {"hard": amounts, "used": {"pods": "5", "secrets": "1"}}
    quota = convert(ResourceQuota, {"spec": {"hard": amounts}, "status": status})
    usage = {"pods": parse_quantity(4), "secrets": parse_quantity(2)}
    patch = status_patch(quota, usage, may_decrease=False)
    assert patch is not None
    assert patch["used"] == {"pods": "5", "secrets": "2"}


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(
    phase: str = "Running",
    *,
    resources: dict[str, Any] | None = None,
    init_resources: dict[str, Any] | None = None,
    **fields: Any,
) -> Pod:
    """Return a pod. resources, init_resources: those of its container statuses by name."""
    status: dict[str, Any] = {"phase": phase}
    for field, by_name in (("containerStatuses", resources), ("initContainerStatuses", init_resources)):
        status[field] = [
            {"name": name, "resources": {"requests": {"cpu": cpu}}} for name, cpu in (by_name or {}).items()
        ]
    metadata = {"name": "p", "namespace": "ns", **fields.pop("metadata", {})}
    return convert(Pod, {"metadata": metadata, "spec": fields, "status": status})


def deleted_at(time: str) -> dict[str, Any]:
    return {"deletionTimestamp": time, "deletionGracePeriodSeconds": 30}


@pytest.mark.parametrize(
    ("old", "new", "frees"),
    [
        pytest.param(pod(), pod(), False, id="unchanged"),
        pytest.param(pod(), pod("Succeeded"), True, id="succeeded"),
        pytest.param(pod(), pod("Failed"), True, id="failed"),
        pytest.param(pod("Pending"), pod(), False, id="started"),
        pytest.param(pod("Failed"), pod("Succeeded"), False, id="had finished"),
        pytest.param(pod(resources={"a": "2"}), pod(resources={"a": "1"}), True, id="container resized"),
        pytest.param(pod(resources={"a": "1"}), pod(resources={"a": "1"}), False, id="container of the same size"),
        pytest.param(pod(), pod(resources={"a": "1"}), False, id="first status of a container"),
        pytest.param(pod(resources={"b": "2"}), pod(resources={"a": "1"}), False, id="status of another container"),
        pytest.param(pod(init_resources={"a": "2"}), pod(init_resources={"a": "1"}), True, id="init container resized"),
        pytest.param(
            pod(resources={"a": "2"}, init_resources={"b": "1"}),
            pod(resources={"a": "2"}, init_resources={"b": "1"}),
            False,
            id="neither resized",
        ),
        pytest.param(pod(), pod(activeDeadlineSeconds=5), True, id="deadline: a scope"),
        pytest.param(pod(activeDeadlineSeconds=5), pod(activeDeadlineSeconds=5), False, id="the same deadline"),
        pytest.param(
            pod(), pod(metadata=deleted_at("2026-01-01T11:59:29Z")), True, id="terminating after the grace period"
        ),
        pytest.param(pod(), pod(metadata=deleted_at("2026-01-01T11:59:30Z")), False, id="terminating"),
    ],
)
def test_pod_update_can_free_usage(old, new, frees):
    assert can_free_usage("pods", old, new, NOW) is frees


def service(type_: str, ports: int = 1) -> Service:
    metadata = {"name": "s", "namespace": "ns"}
    return convert(
        Service, {"metadata": metadata, "spec": {"type": type_, "ports": [{"port": 80 + n} for n in range(ports)]}}
    )


def volume_claim(size: str, attributes_class: str = "") -> PersistentVolumeClaim:
    spec = {"resources": {"requests": {"storage": size}}, "volumeAttributesClassName": attributes_class or None}
    return convert(PersistentVolumeClaim, {"metadata": {"name": "c", "namespace": "ns"}, "spec": spec})


@pytest.mark.parametrize(
    ("kind", "old", "new", "frees"),
    [
        ("services", service("ClusterIP"), service("ClusterIP"), False),
        ("services", service("LoadBalancer"), service("ClusterIP"), True),
        ("services", service("NodePort", 2), service("NodePort", 1), True),
        ("services", service("ClusterIP", 2), service("ClusterIP", 1), False),
        ("persistentvolumeclaims", volume_claim("1Gi"), volume_claim("1Gi"), False),
        ("persistentvolumeclaims", volume_claim("1Gi"), volume_claim("2Gi"), True),
        ("persistentvolumeclaims", volume_claim("1Gi", "gold"), volume_claim("1Gi", "gold"), False),
        ("persistentvolumeclaims", volume_claim("1Gi", "gold"), volume_claim("1Gi", "silver"), True),
        ("resourceclaims", service("LoadBalancer"), service("ClusterIP"), False),
    ],
)
def test_update_of_other_kinds_can_free_usage(kind, old, new, frees):
    assert can_free_usage(kind, old, new, NOW) is frees
