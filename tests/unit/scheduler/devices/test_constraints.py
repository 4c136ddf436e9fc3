"""Constraints: values of all types, requests and alternatives that they apply to."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.device_types import Device, DeviceConstraint
from kubeloop.scheduler.devices.constraints import new_constraint
from kubeloop.scheduler.devices.errors import AllocationError
from support.devices import DRIVER


def with_value(**attribute):
    return convert(Device, {"name": "d", "attributes": {"x": attribute}})


def constraint(kind="match_attribute", requests=(), name=f"{DRIVER}/x"):
    return new_constraint(DeviceConstraint(requests=tuple(requests), **{kind: name}), "default/c", 0)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"string": "a"}, {"string": "a"}, True),
        ({"string": "a"}, {"string": "b"}, False),
        ({"int": 1}, {"int": 1}, True),
        ({"int": 1}, {"bool": True}, False),
        ({"version": "1.0.0"}, {"version": "1.0.0"}, True),
        ({"version": "1.0.0"}, {"string": "1.0.0"}, False),
        ({"strings": ["a"]}, {"strings": ["a"]}, False),
    ],
)
def test_match_attribute(first, second, same):
    match = constraint()
    assert match.add("r", "", DRIVER, with_value(**first))
    assert match.add("r", "", DRIVER, with_value(**second)) == same


def test_distinct_attribute_accepts_a_value_again_after_its_removal():
    distinct = constraint("distinct_attribute")
    assert distinct.add("r", "", DRIVER, with_value(int=1))
    assert not distinct.add("s", "", DRIVER, with_value(int=1))
    assert distinct.add("s", "", DRIVER, with_value(int=2))
    distinct.remove("s", "")
    assert distinct.add("s", "", DRIVER, with_value(int=2))


def test_attribute_of_another_domain_counts_only_with_its_domain():
    other = constraint(name="other.example.com/x")
    assert not other.add("r", "", DRIVER, with_value(int=1))
    qualified = convert(Device, {"name": "d", "attributes": {"other.example.com/x": {"int": 1}}})
    assert other.add("r", "", DRIVER, qualified)


@pytest.mark.parametrize(
    ("requests", "request_name", "subrequest", "applies"),
    [
        ((), "r", "", True),
        (("r",), "r", "", True),
        (("s",), "r", "", False),
        (("r",), "r", "small", True),
        (("r/small",), "r", "small", True),
        (("r/large",), "r", "small", False),
    ],
)
def test_requests_of_a_constraint(requests, request_name, subrequest, applies):
    without = convert(Device, {"name": "d"})
    assert constraint(requests=requests).add(request_name, subrequest, DRIVER, without) != applies


def test_empty_constraint_is_an_error():
    with pytest.raises(AllocationError, match="claim default/c, constraint #3: empty constraint"):
        new_constraint(DeviceConstraint(), "default/c", 3)
