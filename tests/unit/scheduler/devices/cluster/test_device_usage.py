"""Device usage: dedicated and shared devices, and the nodes with changes."""

from __future__ import annotations

from kubeloop.kube.values.quantities import parse_quantity
from kubeloop.scheduler.devices.cluster.device_usage import DeviceUsage
from support.objects.devices import allocated, claim, typed

KEY = ("gpu.example.com", "a")


def usage(*, consumable_capacity=True):
    return DeviceUsage(lambda key: key[1], consumable_capacity=consumable_capacity)


def allocation(*devices, **result):
    return typed(claim("c", status=allocated(*devices, **result))).status.allocation


def test_dedicated_device():
    devices = usage()
    devices.set_allocation("c", allocation(("a", "d")))
    assert devices.pool(KEY).is_allocated("d")
    devices.set_allocation("c", allocation(("a", "e")))
    assert not devices.pool(KEY).is_allocated("d")
    devices.set_allocation("c", None)
    assert not devices.pool(KEY).is_allocated("e")


def test_shares_add_up_and_are_removed():
    devices = usage()
    for uid, amount in (("c1", "1Gi"), ("c2", "3Gi")):
        share = allocation(("a", "d"), shareID=uid, consumedCapacity={"memory": amount})
        devices.set_allocation(uid, share)
    pool = devices.pool(KEY)
    assert (pool.consumed("d"), pool.dedicated["d"], pool.is_allocated("d")) == (
        {"memory": parse_quantity("4Gi")},
        0,
        True,
    )
    devices.set_allocation("c1", None)
    assert pool.consumed("d") == {"memory": parse_quantity("3Gi")}
    devices.set_allocation("c2", None)
    assert (pool.consumed("d"), pool.is_allocated("d")) == ({}, False)


def test_share_without_the_gate_counts_as_the_device():
    devices = usage(consumable_capacity=False)
    devices.set_allocation("c", allocation(("a", "d"), shareID="s"))
    assert "d" in devices.pool(KEY).dedicated


def test_access_by_an_administrator_does_not_count():
    devices = usage()
    devices.set_allocation("c", allocation(("a", "d"), adminAccess=True))
    assert not devices.pool(KEY).is_allocated("d")


def test_nodes_with_changes():
    devices = usage()
    version = devices.version
    devices.set_allocation("c", allocation(("a", "d"), ("b", "d")))
    assert devices.changed_since(version) == {"a", "b"}
    assert devices.changed_since(devices.version) == set()
    devices.set_allocation("c", allocation(("a", "d"), ("b", "d")))
    assert devices.changed_since(version) == {"a", "b"}
    devices.changed("")
    assert devices.changed_since(version) is None
    assert devices.changed_since(-5000) is None


def test_equal_allocation_changes_nothing():
    """An informer delivers a claim again whenever anything of it changes."""
    devices = usage()
    first = allocation(("a", "d"))
    devices.set_allocation("c", first)
    version = devices.version
    devices.set_allocation("c", allocation(("a", "d")))
    devices.set_allocation("c", first)
    devices.set_allocation("other", None)
    assert devices.version == version
    devices.set_allocation("c", allocation(("a", "e")))
    assert devices.version > version
