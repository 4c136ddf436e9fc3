"""Topology aware hints: shares of zones, allocation, transfers between zones."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.endpointslice.slice_changes import SliceChanges
from kubeloop.controllers.endpointslice.topology_cache import (
    TopologyCache,
    allocate,
    cpu_ratios,
    wants_topology_hints,
)
from kubeloop.kube.objects.api_types import Node, convert


def node(zone: str, cpu: str = "4", *, ready: str = "True", **labels: str) -> Node:
    status = {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": ready}]}
    zone_label = {"topology.kubernetes.io/zone": zone} if zone else {}
    return convert(Node, {"metadata": {"labels": {**zone_label, **labels}}, "status": status})


def slice_of(*zones: str, **fields: Any) -> dict[str, Any]:
    endpoints = [{"addresses": [], "conditions": {"ready": True}, "zone": zone, **fields} for zone in zones]
    return {"metadata": {"name": "s"}, "endpoints": endpoints}


def hints(changes: SliceChanges) -> list[str]:
    slices = (*changes.create, *changes.update)
    return [it["hints"]["forZones"][0]["name"] for current in slices for it in current["endpoints"]]


def test_ratios_count_ready_worker_nodes():
    nodes = [node("a"), node("b", "12"), node("b", ready="False"), node("c", **{"node-role.kubernetes.io/master": ""})]
    assert cpu_ratios(nodes) == {"a": 0.25, "b": 0.75}
    assert cpu_ratios([*nodes, node("")]) == {}
    assert cpu_ratios([node("a"), node("a")]) == {}


@pytest.mark.parametrize(
    ("ratios", "endpoints", "problem"),
    [
        ({}, 5, "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"),
        ({"a": 0.5, "b": 0.5}, 1, "Insufficient number of endpoints (1 endpoints, 2 zones)"),
        (
            {"a": 0.5, "b": 0.5},
            3,
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold "
            "(3 endpoints, 2 zones)",
        ),
        ({"a": 0.5, "b": 0.5}, 4, ""),
    ],
)
def test_allocation_needs_enough_endpoints(ratios, endpoints, problem):
    assert allocate(ratios, endpoints)[1] == problem


def test_endpoints_have_hints_for_their_zone_and_surplus_moves():
    cache = TopologyCache()
    cache.ratios = {"a": 0.5, "b": 0.5}
    changes = SliceChanges(create=[slice_of("a", "a", "a", "b")])
    (event,) = cache.add_hints("ns/web", "IPv4", changes)
    assert sorted(hints(changes)) == ["a", "a", "b", "b"]
    assert (event.type, event.reason) == ("Normal", "TopologyAwareHintsEnabled")
    assert event.message == "Topology Aware Hints has been enabled, addressType: IPv4"
    assert cache.services() == ["ns/web"]


@pytest.mark.parametrize(
    ("ratios", "zones", "expected"),
    [
        pytest.param({"a": 0.5, "b": 0.5}, "aaaaabbbb", "aaaaabbbb", id="half an endpoint each"),
        pytest.param({"a": 0.2, "b": 0.35, "c": 0.45}, "aaabbbcccc", "aabbbbcccc", id="two lack half of one"),
        pytest.param({"a": 0.4, "b": 0.6}, "aaaaabbbbb", "aaaabbbbbb", id="1 endpoint each"),
        pytest.param({"a": 0.88, "b": 0.12}, "aaab", "aaab", id="a zone lacks endpoints, none has too many"),
        pytest.param(dict.fromkeys("abcd", 0.25), "aaabcccd", "aabbccdd", id="two zones give to two others"),
    ],
)
def test_zones_exchange_at_least_half_of_an_endpoint(ratios, zones, expected):
    cache = TopologyCache()
    cache.ratios = ratios
    changes = SliceChanges(create=[slice_of(*zones)])
    cache.add_hints("ns/web", "IPv4", changes)
    assert "".join(sorted(hints(changes))) == expected


def test_valid_hints_of_unchanged_slices_stay():
    cache = TopologyCache()
    cache.ratios = {"a": 0.5, "b": 0.5}
    changes = SliceChanges(create=[slice_of("a", "a", "b", "b")])
    cache.add_hints("ns/web", "IPv4", changes)
    unchanged = SliceChanges(unchanged=changes.create)
    assert cache.add_hints("ns/web", "IPv4", unchanged) == []
    assert (unchanged.update, len(unchanged.unchanged)) == ([], 1)
    invalid = SliceChanges(unchanged=[slice_of("a", "a", "b", "b")])
    cache.add_hints("ns/web", "IPv4", invalid)
    assert hints(invalid) == ["a", "a", "b", "b"]


def test_missing_zone_removes_all_hints():
    cache = TopologyCache()
    cache.ratios = {"a": 0.5, "b": 0.5}
    changes = SliceChanges(create=[slice_of("a", "b", "a", "")])
    (event,) = cache.add_hints("ns/web", "IPv4", changes)
    assert event.message == "One or more endpoints do not have a zone specified, addressType: IPv4"
    assert all("hints" not in it for it in changes.create[0]["endpoints"])
    assert cache.disable("ns/web", "IPv4") == []


def test_disabled_hints_are_reported_once():
    cache = TopologyCache()
    cache.ratios = {"a": 0.5, "b": 0.5}
    cache.add_hints("ns/web", "IPv4", SliceChanges(create=[slice_of("a", "b")]))
    assert [event.reason for event in cache.disable("ns/web", "IPv4")] == ["TopologyAwareHintsDisabled"]
    assert cache.disable("ns/web", "IPv4") == []
    assert cache.services() == []


def test_deprecated_annotation_has_precedence():
    assert wants_topology_hints({"service.kubernetes.io/topology-mode": "Auto"})
    assert not wants_topology_hints(
        {"service.kubernetes.io/topology-mode": "Auto", "service.kubernetes.io/topology-aware-hints": "Disabled"}
    )


def test_only_zones_with_a_surplus_give_endpoints():
    cache = TopologyCache()
    cache.ratios = dict.fromkeys("abc", 1 / 3)
    changes = SliceChanges(create=[slice_of("c", "c", "a", "a", "a", "b")])
    cache.add_hints("ns/web", "IPv4", changes)
    assert hints(changes) == ["c", "c", "b", "a", "a", "b"]


def hinted(*hints: str, ready: bool = True) -> dict[str, Any]:
    """Return a slice of endpoints in zone a with these hints; "": none."""
    endpoints = [
        {"conditions": {"ready": ready}, "zone": "a"} | ({"hints": {"forZones": [{"name": hint}]}} if hint else {})
        for hint in hints
    ]
    return {"metadata": {"name": "s"}, "endpoints": endpoints}


@pytest.mark.parametrize(
    ("unchanged", "valid"),
    [
        pytest.param([hinted("a", "a")], True, id="as many as the zone gets"),
        pytest.param([hinted("a", "a", "a")], False, id="too many for the zone"),
        pytest.param([hinted("a", "a"), hinted("a")], False, id="too many with another slice"),
        pytest.param([hinted("a"), hinted("a")], True, id="two slices"),
        pytest.param([hinted("x")], False, id="unknown zone"),
        pytest.param([hinted("a", "")], False, id="one has no hint"),
        pytest.param([hinted("", ready=False)], True, id="not ready"),
    ],
)
def test_hints_of_unchanged_slices_are_checked(unchanged, valid):
    ready = sum(it["conditions"]["ready"] for current in unchanged for it in current["endpoints"])
    changes = SliceChanges(create=[slice_of(*"aabb"[: 4 - ready])], unchanged=list(unchanged))
    cache = TopologyCache()
    cache.ratios = {"a": 0.5, "b": 0.5}
    cache.add_hints("ns/web", "IPv4", changes)
    assert (changes.unchanged == unchanged) is valid
    assert len(changes.unchanged) + len(changes.update) == len(unchanged)


def test_service_that_no_longer_gets_hints_is_forgotten():
    cache = TopologyCache()
    cache.ratios = {"a": 0.5, "b": 0.5}
    cache.add_hints("ns/web", "IPv4", SliceChanges(create=[slice_of("a", "b")]))
    (event,) = cache.add_hints("ns/web", "IPv4", SliceChanges(create=[slice_of("a")]))
    assert event.reason == "TopologyAwareHintsDisabled"
    assert cache.services() == []
    (event,) = cache.add_hints("ns/web", "IPv4", SliceChanges(create=[slice_of("a", "b")]))
    assert event.reason == "TopologyAwareHintsEnabled"
