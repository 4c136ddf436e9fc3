"""Volume provisioner: which claims get a volume, and which volumes are deleted."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.devcluster.controllers.volume_provisioner import DEFAULT_CLASS, PROVISIONER, VolumeProvisioner
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import (
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from kubeloop.testing.virtual_time import VirtualClock
from support.objects.persistent_volumes import persistent_volume, persistent_volume_claim

pytestmark = pytest.mark.virtual_time
REQUESTED = {"volume.kubernetes.io/storage-provisioner": PROVISIONER}


@pytest.mark.parametrize(
    ("metadata", "spec"),
    [
        pytest.param({}, {}, id="not requested"),
        pytest.param({"annotations": REQUESTED}, {}, id="no node is selected"),
        pytest.param({"annotations": REQUESTED}, {"volumeName": "disk"}, id="has a volume"),
    ],
)
async def test_claim_gets_no_volume(metadata: dict[str, Any], spec: dict[str, Any]):
    store = ObjectStore(seconds=asyncio.get_running_loop().time)
    head = {"name": "data", "namespace": "default", "uid": "c", **metadata}
    store.create(PERSISTENT_VOLUME_CLAIMS, persistent_volume_claim(head, storageClassName=DEFAULT_CLASS, **spec))
    await run(store)
    assert store.list(PERSISTENT_VOLUMES) == []


@pytest.mark.parametrize(
    ("phase", "policy", "left"),
    [
        pytest.param("Released", "Delete", 0, id="released"),
        pytest.param("Released", "Retain", 1, id="retained"),
        pytest.param("Bound", "Delete", 1, id="bound"),
    ],
)
async def test_provisioned_volume_is_deleted_when_it_is_released(phase, policy, left):
    store = ObjectStore(seconds=asyncio.get_running_loop().time)
    metadata = {"name": "disk", "uid": "v", "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}}
    volume = persistent_volume(metadata, persistentVolumeReclaimPolicy=policy)
    store.create(PERSISTENT_VOLUMES, {**volume, "status": {"phase": phase}})
    await run(store)
    assert len(store.list(PERSISTENT_VOLUMES)) == left


@pytest.mark.parametrize(
    ("drivers", "segment"),
    [
        pytest.param([], {"kubernetes.io/hostname": "host"}, id="no driver"),
        pytest.param(
            [{"name": "other", "topologyKeys": ["zone"]}], {"kubernetes.io/hostname": "host"}, id="other driver"
        ),
        pytest.param(
            [{"name": PROVISIONER, "topologyKeys": None}], {"kubernetes.io/hostname": "host"}, id="no topology"
        ),
        pytest.param([{"name": PROVISIONER, "topologyKeys": ["zone", "rack"]}], {"zone": "a"}, id="zone"),
    ],
)
async def test_volume_is_for_the_segment_of_the_selected_node(drivers: list[dict[str, Any]], segment: dict[str, str]):
    store = ObjectStore(seconds=asyncio.get_running_loop().time)
    labels = {"kubernetes.io/hostname": "host", "zone": "a"}
    store.create(NODES, {"kind": "Node", "metadata": {"name": "n1", "labels": labels}, "spec": {}})
    store.create(CSI_NODES, {"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
    create_waiting_claim(store)
    await run(store)
    (volume,) = store.list(PERSISTENT_VOLUMES)
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert {it["key"]: it["values"] for it in term["matchExpressions"]} == {key: [segment[key]] for key in segment}


@pytest.mark.parametrize(("seconds", "volumes"), [("0.9", 1), ("1.1", 0)])
async def test_volume_is_created_after_the_seconds_of_its_class(seconds: str, volumes: int):
    store = ObjectStore(seconds=asyncio.get_running_loop().time)
    store.create(NODES, {"kind": "Node", "metadata": {"name": "n1"}, "spec": {}})
    create_waiting_claim(store, **{"kubeloop.dev/provision-seconds": seconds})
    await run(store)
    assert len(store.list(PERSISTENT_VOLUMES)) == volumes


async def test_default_class_that_was_deleted_before_the_start_stays_deleted():
    store = ObjectStore(seconds=asyncio.get_running_loop().time)
    await run(store, default_class=False)
    assert store.list(STORAGE_CLASSES) == []


def create_waiting_claim(store: ObjectStore, **annotations: str) -> None:
    """Create a StorageClass with these annotations, and a claim of it for which node n1 is selected."""
    head = {"kind": "StorageClass", "metadata": {"name": "fast", "annotations": annotations}}
    store.create(STORAGE_CLASSES, {**head, "provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"})
    selected = {**REQUESTED, "volume.kubernetes.io/selected-node": "n1"}
    metadata = {"name": "data", "namespace": "default", "uid": "c", "annotations": selected}
    store.create(PERSISTENT_VOLUME_CLAIMS, persistent_volume_claim(metadata, storageClassName="fast"))


async def run(store: ObjectStore, *, default_class: bool = True) -> None:
    provisioner = VolumeProvisioner(store, clock=VirtualClock(), rng=random.Random(1))
    if default_class:
        provisioner.register()
    task = asyncio.ensure_future(provisioner.run())
    await asyncio.sleep(1)
    task.cancel()
