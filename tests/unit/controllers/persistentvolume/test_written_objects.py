"""Objects that a controller has written."""

from __future__ import annotations

from kubeloop.controllers.persistentvolume.written_objects import WrittenObjects
from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import ObjectMeta
from kubeloop.kube.objects.storage_types import PersistentVolume


def volume(version: str, uid: str = "u") -> PersistentVolume:
    return PersistentVolume(metadata=ObjectMeta(name="v", uid=uid, resource_version=version))


def test_newer_one_of_write_and_cache_is_returned():
    cache: Store[PersistentVolume] = Store()
    written = WrittenObjects(cache)
    assert written.get("v") is None
    cache.put("v", volume("5"))
    response = written.wrote(volume("7"))
    assert written.get("v") is response
    cache.put("v", volume("9"))
    assert written.get("v") == volume("9")


def test_write_of_a_deleted_or_replaced_object_is_forgotten():
    cache: Store[PersistentVolume] = Store()
    written = WrittenObjects(cache)
    written.wrote(volume("7"))
    assert written.get("v") is None
    cache.put("v", volume("8", "new"))
    written.wrote(volume("9"))
    assert written.get("v") == volume("8", "new")
