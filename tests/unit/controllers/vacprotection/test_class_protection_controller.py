"""VolumeAttributesClass protection: a deleted class stays while a volume or claim uses it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.api.runner import new_controller
from kubeloop.controllers.vacprotection.class_protection_controller import (
    FINALIZER,
    VolumeAttributesClassProtectionController,
    classes_of_claim,
)
from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_ATTRIBUTES_CLASSES,
)
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
from support.objects.persistent_volumes import persistent_volume_claim

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def apiserver(fake_apiserver, start):
    controller = new_controller(VolumeAttributesClassProtectionController, fake_apiserver.context)
    await start(fake_apiserver.informers, controller)
    fake_apiserver.api.create(
        VOLUME_ATTRIBUTES_CLASSES.path(), {"metadata": {"name": "gold"}, "driverName": "d", "parameters": {"iops": "1"}}
    )
    return fake_apiserver


async def delete_class(api: Any) -> list[str]:
    """Delete the class, and return the classes that exist some time later."""
    await api.client.delete(VOLUME_ATTRIBUTES_CLASSES, "gold")
    return await class_names(api)


async def class_names(api: Any) -> list[str]:
    await asyncio.sleep(1)
    names: list[str] = api.names(VOLUME_ATTRIBUTES_CLASSES)
    return names


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {}, ()),
        ({"volumeAttributesClassName": "a"}, {"currentVolumeAttributesClassName": "a"}, ("a",)),
        (
            {"volumeAttributesClassName": "a"},
            {"currentVolumeAttributesClassName": "b", "modifyVolumeStatus": {"targetVolumeAttributesClassName": "c"}},
            ("a", "b", "c"),
        ),
        ({"volumeAttributesClassName": ""}, {"modifyVolumeStatus": {"status": "Pending"}}, ()),
    ],
)
def test_classes_of_claim(spec: Any, status: Any, expected: tuple[str, ...]):
    assert classes_of_claim(convert(PersistentVolumeClaim, {"spec": spec, "status": status})) == expected


async def test_unused_class_is_deleted(apiserver):
    assert await delete_class(apiserver) == []


async def test_removed_finalizer_is_added_again(apiserver):
    path = VOLUME_ATTRIBUTES_CLASSES.path("", "gold")
    body = {"metadata": {"finalizers": None}}
    apiserver.api.succeed("PATCH", path, body, content_type="application/merge-patch+json")
    await asyncio.sleep(1)
    assert apiserver.store.get(VOLUME_ATTRIBUTES_CLASSES, "", "gold")["metadata"]["finalizers"] == [FINALIZER]


async def test_class_of_a_claim_stays_until_the_claim_is_deleted(apiserver):
    claim = persistent_volume_claim({"name": "data"})
    claim["spec"]["volumeAttributesClassName"] = "gold"
    apiserver.api.create(PERSISTENT_VOLUME_CLAIMS.path("ns"), claim)
    assert await delete_class(apiserver) == ["gold"]
    apiserver.store.delete(PERSISTENT_VOLUME_CLAIMS, "ns", "data")
    assert await class_names(apiserver) == []


async def test_class_of_a_volume_stays_until_the_volume_has_another(apiserver):
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "d", "volumeHandle": "h"},
        "volumeAttributesClassName": "gold",
    }
    apiserver.api.create(PERSISTENT_VOLUMES.path(), {"metadata": {"name": "v"}, "spec": spec})
    assert await delete_class(apiserver) == ["gold"]
    volume = apiserver.store.get(PERSISTENT_VOLUMES, "", "v")
    apiserver.store.update(
        PERSISTENT_VOLUMES, {**volume, "spec": {**volume["spec"], "volumeAttributesClassName": "silver"}}
    )
    assert await class_names(apiserver) == []
