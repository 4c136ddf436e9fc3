"""Constraints: values of all types, requests and alternatives that they apply to."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.device_types import Device, DeviceConstraint
from kubeloop.scheduler.devices.constraints import new_constraint
from kubeloop.scheduler.devices.errors import AllocationError
from support.objects.devices import DRIVER


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


def lists(kind="match_attribute"):
    return new_constraint(DeviceConstraint(**{kind: f"{DRIVER}/x"}), "default/c", 0, lists=True)


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        ({"strings": ["a", "b"]}, {"strings": ["b", "c"]}, True),
        ({"strings": ["a", "b"]}, {"string": "b"}, True),
        ({"ints": [1, 2]}, {"ints": [3]}, False),
        ({"ints": [1]}, {"bools": [True]}, False),
        ({"versions": ["1.0.0"]}, {"strings": ["1.0.0"]}, False),
    ],
)
def test_lists_match_if_they_have_a_value_in_common(first, second, common):
    match, distinct = lists(), lists("distinct_attribute")
    for constraint_, accepted in ((match, common), (distinct, not common)):
        assert constraint_.add("r", "", DRIVER, with_value(**first))
        assert constraint_.add("s", "", DRIVER, with_value(**second)) is accepted


def test_all_devices_have_a_value_in_common_also_after_a_removal():
    match = lists()
    assert match.add("r", "", DRIVER, with_value(ints=[1, 2, 3]))
    assert match.add("r", "", DRIVER, with_value(ints=[1, 2]))
    assert not match.add("r", "", DRIVER, with_value(ints=[3]))
    match.remove("r", "")
    assert match.add("r", "", DRIVER, with_value(int=3))


def test_no_two_devices_of_a_request_have_a_value_in_common():
    distinct = lists("distinct_attribute")
    for number in (1, 2):
        assert distinct.add("r", "", DRIVER, with_value(ints=[number, number + 10]))
    assert not distinct.add("r", "", DRIVER, with_value(int=11))


def test_device_without_values_satisfies_no_constraint_over_lists():
    assert not lists().add("r", "", DRIVER, with_value(ints=[]))
    assert not lists().add("r", "", DRIVER, convert(Device, {"name": "d"}))


@pytest.mark.parametrize("lists", [False, True])
def test_distinct_attribute_of_some_requests(lists):
    spec = DeviceConstraint(requests=("r", "s"), distinct_attribute=f"{DRIVER}/x")
    distinct = new_constraint(spec, "default/c", 0, lists=lists)
    assert distinct.add("r", "", DRIVER, with_value(int=1))
    assert distinct.add("t", "", DRIVER, with_value(int=1)), "it does not apply to t"
    assert not distinct.add("s", "", DRIVER, with_value(int=1))
    assert not distinct.add("s", "", DRIVER, convert(Device, {"name": "d"})), "no value"
    distinct.remove("t", "")
    assert not distinct.add("s", "", DRIVER, with_value(int=1))
    distinct.remove("r", "")
    assert distinct.add("s", "", DRIVER, with_value(int=1))


@pytest.mark.parametrize("lists", [False, True])
def test_match_attribute_of_some_requests(lists):
    spec = DeviceConstraint(requests=("r", "s"), match_attribute=f"{DRIVER}/x")
    match = new_constraint(spec, "default/c", 0, lists=lists)
    assert match.add("t", "", DRIVER, with_value(int=9)), "it does not apply to t"
    assert not match.add("r", "", DRIVER, convert(Device, {"name": "d"})), "no value"
    assert match.add("r", "", DRIVER, with_value(int=1))
    assert not match.add("s", "", DRIVER, with_value(int=2))
    match.remove("t", "")
    assert not match.add("s", "", DRIVER, with_value(int=2))
    match.remove("r", "")
    assert match.add("s", "", DRIVER, with_value(int=2))
