"""Devices of a class on a node, and those in use."""

from __future__ import annotations

import pytest

from kubeloop.scheduler.devices.class_devices import ClassDevices
from support.objects.devices import FilledDevices, allocated, claim, device, device_class, device_slice, typed

ZONE = {"key": "zone", "operator": "In", "values": ["z"]}
IN_ZONE = {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}
LARGE = "device.attributes['gpu.example.com'].size == 'large'"


@pytest.fixture
def devices():
    large, small = ({"attributes": {"size": size}} for size in ("large", "small"))
    return FilledDevices(
        device_slice("a", device("d", **large), device("e", **large), device("f", **small)),
        device_slice(None, device("s", **large), pool="zone", nodeSelector=IN_ZONE),
        device_slice(
            None, device("x", nodeName="a", **large), device("y", nodeName="b", **large), perDeviceNodeSelection=True
        ),
        claim("c", status=allocated(("a", "e"))),
    )


@pytest.mark.parametrize(
    ("expressions", "node", "labels", "count"),
    [
        ((LARGE,), "a", {}, (3, 1)),
        ((LARGE,), "a", {"zone": "z"}, (4, 1)),
        ((), "a", {}, (4, 1)),
        ((LARGE,), "b", {}, (1, 0)),
        (("device.attributes['gpu.example.com'].none == 'x'",), "a", {}, (0, 0)),  # an error
    ],
)
def test_count(devices, expressions, node, labels, count):
    counted = ClassDevices(devices.pools, devices.usage, devices.selectors, devices.selector_lists)
    assert counted.count(typed(device_class("gpu", *expressions)), node, labels) == count


def test_resource_without_a_class_has_no_devices(devices):
    assert devices.count_devices("example.com/gpu", "a", {}) == (0, 0)
    devices.apply(device_class("gpu", LARGE, extendedResourceName="example.com/gpu"))
    assert devices.count_devices("example.com/gpu", "a", {}) == (3, 1)
