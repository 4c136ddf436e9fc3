"""Consumable capacity: rounding of requests, and what is left of a device."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.device_types import CapacityRequirements, Device
from kubeloop.kube.values.quantities import parse_quantity
from kubeloop.scheduler.devices.capacity import consumed_capacity, has_capacity
from support.objects.devices import device

RANGE = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "2Gi"}}
STEPS = {"default": "3Gi", "validRange": {"step": "2Gi", "max": "8Gi"}}  # without a minimum
VALUES = {"default": "5", "validValues": ["10", "20", "40"]}


def shared(value="10Gi", policy=None):
    capacity = {"value": value} | ({"requestPolicy": policy} if policy else {})
    return convert(Device, device("d", allowMultipleAllocations=True, capacity={"amount": capacity}))


def required(amount):
    return None if amount is None else CapacityRequirements(requests={"amount": amount})


@pytest.mark.parametrize(
    ("policy", "amount", "consumed"),
    [
        pytest.param(None, "3Gi", "3Gi", id="no policy: the request"),
        pytest.param(None, None, "10Gi", id="no request: everything"),
        pytest.param(RANGE, None, "1Gi", id="no request: the default"),
        pytest.param(RANGE, "512Mi", "1Gi", id="minimum"),
        pytest.param(RANGE, "3Gi", "3Gi", id="on a step"),
        pytest.param(RANGE, "4Gi", "5Gi", id="rounded up to a step"),
        pytest.param({"default": "1", "validRange": {"min": "1"}}, "7", "7", id="no step"),
        pytest.param(VALUES, "11", "20", id="rounded up to a valid value"),
        pytest.param(VALUES, "20", "20", id="a valid value"),
        pytest.param(VALUES, "1", "10", id="less than all valid values"),
        pytest.param(VALUES, "40", "40", id="the highest valid value"),
        pytest.param(VALUES, "41", "41", id="more than all valid values"),
    ],
)
def test_consumed_capacity(policy, amount, consumed):
    assert consumed_capacity(shared(policy=policy), required(amount)) == {"amount": parse_quantity(consumed)}


@pytest.mark.parametrize(
    ("policy", "amount", "allocated", "fits"),
    [
        pytest.param(None, "4Gi", "6Gi", True, id="exactly what is left"),
        pytest.param(None, "4Gi", "7Gi", False, id="more than is left"),
        pytest.param(None, "11Gi", None, False, id="more than there is"),
        pytest.param(RANGE, "9Gi", None, False, id="above the maximum"),
        pytest.param({"validRange": {"min": "1", "max": "8"}}, "7", None, True, id="within a range without steps"),
        pytest.param({"validRange": {"min": "1", "max": "8"}}, "9", None, False, id="above a range without steps"),
        pytest.param(VALUES, "41", None, False, id="no valid value is large enough"),
        pytest.param(VALUES, None, None, True, id="the default need not be a valid value"),
        pytest.param(VALUES, "20", None, True, id="a valid value"),
        pytest.param(RANGE, "8Gi", None, False, id="rounded up above the maximum"),
        pytest.param(RANGE, "7Gi", None, True, id="the last step below the maximum"),
        pytest.param(STEPS, "4Gi", None, True, id="a multiple of the step"),
        pytest.param(STEPS, "5Gi", None, False, id="no multiple of the step"),
        pytest.param(STEPS, "8Gi", None, True, id="the maximum"),
        pytest.param(STEPS, "10Gi", None, False, id="a multiple of the step above the maximum"),
        pytest.param(STEPS, None, None, True, id="the default need not be a multiple of the step"),
        pytest.param(STEPS, "3Gi", None, True, id="the default as a request"),
        pytest.param(STEPS, "3072Mi", None, False, id="the amount of the default in another unit"),
    ],
)
def test_capacity_that_is_left(policy, amount, allocated, fits):
    consumed = {} if allocated is None else {"amount": parse_quantity(allocated)}
    assert has_capacity(shared(policy=policy), required(amount), consumed, {}) == fits
    assert has_capacity(shared(policy=policy), required(amount), {}, consumed) == fits


def test_unknown_capacity_is_never_left():
    assert not has_capacity(shared(), CapacityRequirements(requests={"other": "1"}), {}, {})
