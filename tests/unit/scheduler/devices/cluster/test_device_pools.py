"""Pools: generations, completeness, validity, and the nodes that can use them."""

from __future__ import annotations

import pytest

from kubeloop.scheduler.devices.cluster.device_pools import DevicePools
from kubeloop.scheduler.devices.errors import AllocationError
from support.objects.devices import consumes, counter_slice, device, device_slice, typed

ZONE_A = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}


def pools_of(*slices, partitionable=True):
    pools = DevicePools(partitionable=partitionable)
    for entry in slices:
        pools.put(typed(entry))
    return pools


def usable(pools, node="a", **labels):
    """Return the devices that a node can use, by pool; "incomplete" or the reason why the pool is invalid."""
    return {
        pool.key[1]: "incomplete" if pool.incomplete else pool.invalid_reason or [entry.name for entry in pool.devices]
        for pool in pools.pools(node, labels)
    }


def test_newer_generation_replaces_the_pool():
    old = device_slice("a", device("old"), name="one")
    new = [device_slice("a", device(f"new-{n}"), name=f"new-{n}", generation=2, count=2) for n in (1, 2)]
    pools = pools_of(old)
    assert usable(pools) == {"a": ["old"]}
    pools.put(typed(new[1]))
    assert usable(pools) == {"a": "incomplete"}
    pools.put(typed(new[0]))
    assert usable(pools) == {"a": ["new-1", "new-2"]}
    pools.remove(typed(new[0]))
    pools.remove(typed(new[1]))
    assert usable(pools) == {"a": ["old"]}
    pools.remove(typed(old))
    assert usable(pools) == {}
    assert pools.node_of(("gpu.example.com", "a")) == ""


def test_newer_generation_for_other_nodes_hides_an_obsolete_pool():
    old = device_slice(None, device("d"), pool="p", name="old", nodeSelector=ZONE_A, count=2)
    new = device_slice("b", device("d"), pool="p", name="new", generation=2)
    assert usable(pools_of(old, new), zone="a") == {}


def test_slices_for_other_nodes_complete_a_pool():
    here = device_slice("a", device("d"), pool="p", name="here", count=2)
    pools = pools_of(here)
    assert usable(pools) == {"p": "incomplete"}
    pools.put(typed(device_slice("b", device("e"), pool="p", name="there", count=2)))
    assert usable(pools) == {"p": ["d"]}
    assert usable(pools, "b") == {"p": ["e"]}
    assert usable(pools, "c") == {}


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ([device_slice("a", device("d"), device("d"))], "duplicate device name d"),
        (
            [device_slice("a", device("d", consumesCounters=consumes(memory="1")))],
            "counter set set not found",
        ),
        (
            [
                counter_slice("a", "a", 2, cores="1"),
                device_slice("a", device("d", consumesCounters=consumes(memory="1")), count=2),
            ],
            "counter memory not found in counter set set",
        ),
        (
            [
                counter_slice("a", "a", 2, cores="1"),
                {**counter_slice("a", "a", 2, cores="1"), "metadata": {"name": "x"}},
            ],
            "duplicate counter set name set",
        ),
        (
            [
                counter_slice("a", "a", 3, cores="1"),
                device_slice("a", device("d"), name="here", count=3),
                device_slice("b", device("e", consumesCounters=consumes(memory="1")), pool="a", name="there", count=3),
            ],
            "counter memory not found in counter set set",
        ),
    ],
)
def test_invalid_pool(slices, reason):
    assert usable(pools_of(*slices)) == {"a": reason}


def test_nodes_of_slices_and_devices():
    pools = pools_of(
        device_slice(None, device("d"), pool="all", allNodes=True),
        device_slice(None, device("d"), pool="zone", nodeSelector=ZONE_A),
        device_slice(None, device("d"), pool="unknown"),
        device_slice(
            None, device("x", nodeName="a"), device("y", nodeName="b"), pool="devices", perDeviceNodeSelection=True
        ),
    )
    assert usable(pools, "a", zone="a") == {"all": ["d"], "devices": ["x", "y"], "zone": ["d"]}
    assert usable(pools, "c") == {"all": ["d"]}


def test_invalid_node_selector_is_an_error():
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Like", "values": ["a"]}]}]}
    with pytest.raises(AllocationError, match="failed to perform node selection for slice shared"):
        usable(pools_of(device_slice(None, device("d"), nodeSelector=selector)))


def test_partitions_need_the_gate():
    slices = [counter_slice("a", "a", 2, memory="1"), device_slice("a", device("d"), count=2)]
    assert usable(pools_of(*slices)) == {"a": ["d"]}
    assert usable(pools_of(*slices, partitionable=False)) == {"a": ["d"]}
    per_device = device_slice(None, device("d", allNodes=True), perDeviceNodeSelection=True)
    assert usable(pools_of(per_device, partitionable=False)) == {}


def test_pool_is_local_if_all_of_its_slices_are():
    pools = pools_of(device_slice("a", device("d"), count=2))
    key = ("gpu.example.com", "a")
    assert (pools.node_of(key), pools.has_shared) == ("a", False)
    pools.put(typed(counter_slice("a", "a", 2, memory="1")))
    assert (pools.node_of(key), pools.has_shared) == ("a", False)
    pools.put(typed(device_slice("b", device("e"), pool="a", name="other", count=3)))
    assert (pools.node_of(key), pools.has_shared) == ("", True)


def test_incomplete_pool_with_counters_concerns_all_nodes():
    pools = pools_of(counter_slice("a", "a", 2, memory="1"))
    assert usable(pools, "b") == {"a": "incomplete"}
