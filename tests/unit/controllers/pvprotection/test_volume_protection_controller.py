"""Volume protection: a deleted volume stays while it is bound."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.api.runner import new_controller
from kubeloop.controllers.pvprotection.volume_protection_controller import FINALIZER, VolumeProtectionController
from kubeloop.kube.objects.resources import PERSISTENT_VOLUMES
from support.objects.persistent_volumes import persistent_volume

pytestmark = pytest.mark.virtual_time


async def test_finalizer_stays_on_a_deleted_volume_while_it_is_bound(fake_apiserver, start):
    await start(fake_apiserver.informers, new_controller(VolumeProtectionController, fake_apiserver.context))
    body = persistent_volume({"name": "disk"}, hostPath={"path": "/data"})
    fake_apiserver.api.create(PERSISTENT_VOLUMES.path(), body)
    volume = fake_apiserver.store.get(PERSISTENT_VOLUMES, "", "disk")
    metadata = {name: value for name, value in volume["metadata"].items() if name != "finalizers"}
    bound = {**volume, "metadata": metadata, "status": {**volume["status"], "phase": "Bound"}}
    fake_apiserver.store.update(PERSISTENT_VOLUMES, bound)
    await asyncio.sleep(1)
    assert fake_apiserver.store.get(PERSISTENT_VOLUMES, "", "disk")["metadata"]["finalizers"] == [FINALIZER]
    await fake_apiserver.client.delete(PERSISTENT_VOLUMES, "disk")
    await asyncio.sleep(60)
    volume = fake_apiserver.store.get(PERSISTENT_VOLUMES, "", "disk")
    assert volume is not None
    fake_apiserver.store.update(PERSISTENT_VOLUMES, {**volume, "status": {**volume["status"], "phase": "Released"}})
    await asyncio.sleep(1)
    assert fake_apiserver.store.get(PERSISTENT_VOLUMES, "", "disk") is None
