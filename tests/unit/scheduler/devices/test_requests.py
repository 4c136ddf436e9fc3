"""Requests of a claim: what is unsupported or invalid."""

from __future__ import annotations

import pytest

from kubeloop.scheduler.devices.errors import AllocationError
from kubeloop.scheduler.devices.requests import claim_requests
from support.objects.devices import FilledDevices, alternative, claim, device_class, request, typed


def parsed(*requests, gates=None, **fields):
    devices = FilledDevices(device_class(), gates=gates)
    entry = typed(claim("c", *requests, **fields))
    return claim_requests(entry, devices.device_class, devices.features, devices.selector_lists)


def test_names_of_requests_and_alternatives():
    entry = parsed(request("x"), {"name": "y", "firstAvailable": [alternative("a"), alternative("b", count=2)]})
    names = [
        [(each.full_name, each.base_name, each.subrequest) for each in alternatives] for alternatives in entry.requests
    ]
    assert names == [[("x", "x", "")], [("y/a", "y", "a"), ("y/b", "y", "b")]]


def test_equal_selectors_have_one_number():
    entry = parsed(request("x", "gpu", "true"), request("y", "gpu", "true"), request("z", "gpu", "false"))
    numbers = [alternatives[0].selectors for alternatives in entry.requests]
    assert numbers[0] == numbers[1] != numbers[2]


CAPACITY = {"capacity": {"requests": {"memory": "1Gi"}}}


@pytest.mark.parametrize(
    ("requests", "gates", "message"),
    [
        (
            [request("r", "nope")],
            {},
            "claim default/c, request r: could not retrieve device class nope: "
            'deviceclass.resource.k8s.io "nope" not found',
        ),
        ([request("r", "")], {}, "claim default/c, request r: missing device class name (unsupported request type?)"),
        (
            [request(adminAccess=True)],
            {"DRAAdminAccess": False},
            "claim default/c, request r: admin access is requested, but the feature is disabled",
        ),
        ([request(allocationMode="Half")], {}, "claim default/c, request r: unsupported count mode Half"),
        (
            [request(selectors=[{}])],
            {},
            "claim default/c, request r, selector #0: CEL expression empty (unsupported selector type?)",
        ),
        ([{"name": "r"}], {}, "resource claim default/c, request r: unknown request type"),
        (
            [{"name": "r", "firstAvailable": [alternative("a")]}],
            {"DRAPrioritizedList": False},
            "claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled",
        ),
        (
            [request(**CAPACITY)],
            {"DRAConsumableCapacity": False},
            "claim default/c, request r: has capacity requests, but the DRAConsumableCapacity feature is disabled",
        ),
        (
            [{"name": "r", "firstAvailable": [alternative("a", **CAPACITY)]}],
            {"DRAConsumableCapacity": False},
            "claim default/c, subrequest a: has capacity requests, but the DRAConsumableCapacity feature is disabled",
        ),
    ],
)
def test_unsupported_request(requests, gates, message):
    with pytest.raises(AllocationError) as error:
        parsed(*requests, gates=gates)
    assert str(error.value) == message
