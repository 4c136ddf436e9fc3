"""The cluster's devices: informers that others have read before, and changes of slices."""

from __future__ import annotations

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.scheduler.devices.cluster_devices import ClusterDevices
from support.objects.devices import (
    FilledDevices,
    allocate,
    allocated,
    chosen,
    claim,
    device,
    device_class,
    device_slice,
)


def test_objects_that_the_informers_have_already_are_used():
    filled = FilledDevices(device_class(), device_slice("a", device("d"), device("e")))
    filled.apply(claim("used", status=allocated(("a", "d"))))
    devices = ClusterDevices(filled.informers, FeatureGates({}))
    assert chosen(allocate(devices, claim("c"))) == ["r: a/e"]


def test_synced_when_all_caches_are_complete():
    devices = FilledDevices(synced=False)
    assert not devices.has_synced
    for informer in devices.informers.informers:
        assert not devices.has_synced
        informer.mark_stopped()
    assert devices.has_synced


def test_slice_that_moves_changes_both_nodes():
    devices = FilledDevices(device_class(), device_slice("a", device("d"), name="s", pool="p"))
    version = devices.usage.version
    devices.apply(device_slice("b", device("d"), name="s", pool="p"))
    assert devices.usage.changed_since(version) == {"a", "b"}
    version = devices.usage.version
    devices.apply(device_slice("b", device("d"), name="s", pool="q"))
    assert [key for key in (("gpu.example.com", "p"), ("gpu.example.com", "q")) if devices.pools.has_pool(key)] == [
        ("gpu.example.com", "q")
    ]
    assert devices.usage.changed_since(version) == {"b"}


def test_unchanged_slice_changes_nothing():
    entry = device_slice("a", device("d"))
    devices = FilledDevices(device_class(), entry)
    version = devices.usage.version
    devices.apply({**entry, "metadata": {**entry["metadata"], "resourceVersion": "2"}})
    assert devices.usage.version == version
