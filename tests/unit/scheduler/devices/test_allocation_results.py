"""The allocation that is written to a claim: configuration, node selector, shares."""

from __future__ import annotations

import msgspec
import pytest

from kubeloop.scheduler.devices import allocation_results
from kubeloop.scheduler.devices.errors import AllocationError
from support.objects.devices import (
    FilledDevices,
    allocate,
    alternative,
    claim,
    device,
    device_class,
    device_slice,
    request,
)

OPAQUE = {"driver": "gpu.example.com", "parameters": {"sharing": "time"}}


def plain(value):
    return msgspec.json.decode(msgspec.json.encode(value))


def term(**parts):
    return {"nodeSelectorTerms": [parts]}


ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
RACK = {"key": "rack", "operator": "Exists"}
ON_NODE = term(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["a"]}])


@pytest.mark.parametrize(
    ("slices", "count", "expected"),
    [
        pytest.param([device_slice("a", device("d"))], 1, ON_NODE, id="device of the node"),
        pytest.param([device_slice(None, device("d"), allNodes=True)], 1, None, id="devices of all nodes"),
        pytest.param([device_slice(None, device("d", bindsToNode=True), allNodes=True)], 1, ON_NODE, id="bound"),
        pytest.param(
            [
                device_slice(None, device("d"), pool="p", nodeSelector=term(matchExpressions=[ZONE])),
                device_slice(None, device("d"), pool="q", nodeSelector=term(matchExpressions=[ZONE, RACK])),
            ],
            2,
            term(matchExpressions=[ZONE, RACK]),
            id="selectors are joined",
        ),
        pytest.param(
            [device_slice(None, device("d", nodeSelector=term(matchExpressions=[ZONE])), perDeviceNodeSelection=True)],
            1,
            term(matchExpressions=[ZONE]),
            id="selector of the device",
        ),
    ],
)
def test_node_selector(slices, count, expected):
    devices = FilledDevices(device_class(), *slices)
    (result,) = allocate(devices, claim("c", request(count=count)), labels={"zone": "a", "rack": "1"})
    assert (plain(result.node_selector) if result.node_selector else None) == expected


def test_slice_with_two_selector_terms_is_an_error():
    two = {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}, {"matchExpressions": [RACK]}]}
    devices = FilledDevices(device_class(), device_slice(None, device("d"), nodeSelector=two))
    with pytest.raises(AllocationError, match=r"unsupported ResourceSlice\.NodeSelector with 2 terms"):
        allocate(devices, claim("c"), labels={"zone": "a"})


def test_configuration_of_classes_and_claim():
    devices = FilledDevices(
        device_class("gpu", config=[{"opaque": OPAQUE}]),
        device_class("nic", config=[{"opaque": {**OPAQUE, "driver": "nic.example.com"}}]),
        device_slice("a", *(device(f"d{number}") for number in range(4))),
    )
    requests = [
        request("x"),
        {"name": "y", "firstAvailable": [alternative("many", count=9), alternative("one")]},
        request("z", "nic"),
    ]
    config = [
        {"requests": names, "opaque": {**OPAQUE, "parameters": {"of": names}}}
        for names in (["x"], ["y/many"], ["y/one"])
    ]
    (result,) = allocate(devices, claim("c", *requests, config=[*config, {"opaque": OPAQUE}]))
    assert [(entry.source, entry.requests, entry.opaque["driver"]) for entry in result.devices.config] == [
        ("FromClass", ("x", "y/one"), "gpu.example.com"),
        ("FromClass", ("z",), "nic.example.com"),
        ("FromClaim", ("x",), "gpu.example.com"),
        ("FromClaim", ("y/one",), "gpu.example.com"),
        ("FromClaim", (), "gpu.example.com"),
    ]


def test_result_has_tolerations_conditions_and_consumed_capacity():
    toleration = {"key": "k", "operator": "Exists"}
    shared = device(
        "d",
        allowMultipleAllocations=True,
        capacity={"memory": {"value": "10Gi", "requestPolicy": {"default": "2Gi"}}},
        bindingConditions=["ready"],
        bindingFailureConditions=["broken"],
    )
    devices = FilledDevices(device_class(), device_slice("a", shared))
    (result,) = allocate(devices, claim("c", request(tolerations=[toleration])))
    assert plain(result.devices.results[0]) == {
        "request": "r",
        "driver": "gpu.example.com",
        "pool": "a",
        "device": "d",
        "tolerations": [toleration],
        "bindingConditions": ["ready"],
        "bindingFailureConditions": ["broken"],
        "shareID": "share-1",
        "consumedCapacity": {"memory": "2Gi"},
    }


def test_administrator_access_is_recorded():
    devices = FilledDevices(device_class(), device_slice("a", device("d")))
    (result,) = allocate(devices, claim("c", request(adminAccess=True)))
    assert result.devices.results[0].admin_access
    assert allocation_results.allocation_results([], _NOTHING, "a", devices.features, str) == []


_NOTHING = allocation_results.NodeAllocation((), {})
