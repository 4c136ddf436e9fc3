"""Volume provisioner: which claims get a volume, and which volumes are deleted."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.devcluster.controllers.volume_provisioner import DEFAULT_CLASS, PROVISIONER, VolumeProvisioner
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
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


async def run(store: ObjectStore) -> None:
    provisioner = VolumeProvisioner(store, clock=VirtualClock(), rng=random.Random(1))
    task = asyncio.ensure_future(provisioner.run())
    await asyncio.sleep(1)
    task.cancel()
