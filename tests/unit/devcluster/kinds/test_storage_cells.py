"""Cells of nodes, volumes, storage classes and CSIDrivers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from support.objects.kinds import cells_of

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def cells(resource: str, *, metadata: dict[str, Any] | None = None, **fields: Any) -> list[Any]:
    complete = {"name": "x", "creationTimestamp": "2026-05-01T11:55:00Z", **(metadata or {})}
    return cells_of(resource, {"metadata": complete, **fields}, NOW)


def test_cordoned_node_shows_scheduling_disabled():
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    unready = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    assert cells("nodes", status=ready)[1] == "Ready"
    assert cells("nodes", status=unready)[1] == "NotReady"
    assert cells("nodes", spec={"unschedulable": True})[1] == "Unknown,SchedulingDisabled"


def test_node_roles_come_from_labels_in_order():
    labels = {
        "node-role.kubernetes.io/worker": "",
        "node-role.kubernetes.io/control-plane": "",
        "kubernetes.io/role": "gpu",
    }
    assert cells("nodes", metadata={"labels": labels})[2] == "control-plane,gpu,worker"
    assert cells("nodes")[2] == "<none>"


def test_claim_in_deletion_shows_terminating():
    deleted = {"deletionTimestamp": "2026-05-01T11:59:00Z"}
    assert cells("persistentvolumeclaims", metadata=deleted, status={"phase": "Bound"})[1] == "Terminating"
    assert cells("persistentvolumeclaims", status={"phase": "Bound"})[1] == "Bound"


def test_unbound_claim_hides_capacity_and_access_modes():
    status = {"phase": "Bound", "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}
    assert cells("persistentvolumeclaims", spec={}, status=status)[2:5] == ["", "", ""]
    assert cells("persistentvolumeclaims", spec={"volumeName": "v"}, status=status)[2:5] == ["v", "5Gi", "RWO,RWX"]


def test_volume_shows_its_claim_and_class():
    spec = {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteOncePod"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": "shop", "name": "data"},
        "storageClassName": "fast",
        "volumeMode": "Block",
    }
    assert cells("persistentvolumes", spec=spec, status={"phase": "Bound"}) == [
        "x",
        "5Gi",
        "RWOP",
        "Retain",
        "Bound",
        "shop/data",
        "fast",
        "<unset>",
        "",
        "5m",
        "Block",
    ]


def test_default_storage_class_is_marked():
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    row = cells("storageclasses.storage.k8s.io", metadata={"annotations": annotations}, provisioner="csi.example.com")
    assert row == ["x (default)", "csi.example.com", "Delete", "Immediate", False, "5m"]


def test_csi_driver_requires_attach_by_default():
    assert cells("csidrivers.storage.k8s.io", spec={})[1] is True
    assert cells("csidrivers.storage.k8s.io", spec={"attachRequired": False})[1] is False
