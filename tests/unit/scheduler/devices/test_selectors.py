"""CEL selectors: the variables of a device, and error messages."""

from __future__ import annotations

import pytest

from kubeloop.cel.parser import parse
from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.device_types import Device
from kubeloop.kube.selectors.device_selectors import DeviceSelectorError
from kubeloop.scheduler.devices import selectors as device_selectors
from kubeloop.scheduler.devices.selectors import DeviceSelectors, fields_read

DEVICE = {
    "name": "d",
    "attributes": {
        "model": {"string": "a100"},
        "numa": {"int": 1},
        "ecc": {"bool": True},
        "driverVersion": {"version": "1.2.3"},
        "vendor.example.com/links": {"int": 4},
    },
    "capacity": {"memory": {"value": "40Gi"}},
    "allowMultipleAllocations": True,
}
TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
MILLION = f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(d, {TEN}.all(e, {TEN}.all(f, f >= 0))))))"


def matches(expression, device=DEVICE, *, consumable_capacity=True):
    selectors = DeviceSelectors(consumable_capacity=consumable_capacity)
    return selectors.matches(expression, "gpu.example.com", convert(Device, device))


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("device.driver == 'gpu.example.com'", True),
        ("device.attributes['gpu.example.com'].model == 'a100'", True),
        ("device.attributes['gpu.example.com'].numa > 1", False),
        ("device.attributes['gpu.example.com'].ecc", True),
        ("device.attributes['vendor.example.com'].links == 4", True),
        ("device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('1.2.0'))", True),
        ("device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('39Gi'))", True),
        ("device.allowMultipleAllocations", True),
        ("'vendor.example.com' in device.attributes", True),
        ("'missing.example.com' in device.attributes", False),
        ("has(device.attributes['missing.example.com'].model)", False),
        ("'model' in device.attributes['gpu.example.com']", True),
        ("device.attributes['missing.example.com'] == {}", True),
        ("device.attributes.all(domain, domain.endsWith('.example.com'))", True),
        ("cel.bind(gpu, device.attributes['gpu.example.com'], gpu.model == 'a100' && gpu.numa == 1)", True),
    ],
)
def test_expression(expression, selected):
    assert matches(expression) == selected


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("device.driver", "CEL compile error: must evaluate to bool or the unknown type, not string"),
        ("device.nope", "CEL compile error: compilation failed: ERROR: <input>:1:7: undefined field 'nope'"),
        ("device.attributes['gpu.example.com'].nope == 1", "CEL runtime error: no such key: nope"),
        (
            "device.attributes['gpu.example.com'].numa",
            "CEL runtime error: CEL result of type int could not be converted to bool: "
            "unsupported type conversion from 'int' to bool",
        ),
        (
            MILLION,
            "CEL runtime error: operation cancelled: actual cost limit exceeded",
        ),
    ],
)
def test_error(expression, error):
    with pytest.raises(DeviceSelectorError) as raised:
        matches(expression)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(
    ("attribute", "error"),
    [
        ({}, "CEL runtime error: attribute x: unsupported attribute value"),
        ({"strings": ["a"]}, "CEL runtime error: attribute x: unsupported attribute value"),
        (
            {"version": "1"},
            "CEL runtime error: attribute x: parse semantic version: No Major.Minor.Patch elements found",
        ),
    ],
)
def test_invalid_attribute(attribute, error):
    with pytest.raises(DeviceSelectorError) as raised:
        matches("true", {"name": "d", "attributes": {"x": attribute}})
    assert str(raised.value) == error


def test_variable_of_a_disabled_gate_is_unknown():
    with pytest.raises(DeviceSelectorError, match="undefined field 'allowMultipleAllocations'"):
        matches("device.allowMultipleAllocations", consumable_capacity=False)


@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        ("device.driver == 'x'", [("driver", "", "")]),
        ("device.allowMultipleAllocations", [("allowMultipleAllocations", "", "")]),
        (
            "has(device.attributes['a'].x) && device.capacity['b'].y.sign() > 0",
            [("attributes", "a", "x"), ("capacity", "b", "y")],
        ),
        ("'a' in device.attributes", None),
        ("device.attributes[device.driver].x == 1", None),
        ("cel.bind(a, device.attributes['a'], a.x == 1)", None),
        ("true", []),
    ],
)
def test_fields_that_an_expression_reads(expression, reads):
    fields = fields_read(parse(expression, bindings=True))
    assert fields == (None if reads is None else tuple(reads))


def test_devices_that_differ_in_what_is_read_have_their_own_results():
    selectors, results = DeviceSelectors(consumable_capacity=True), []
    for value in ({"int": 1}, {"int": 2}, {"bool": True}, {"int": 1}):
        device = convert(Device, {"name": "d", "attributes": {"x": value, "gpu.example.com/y": {"int": 1}}})
        results.append(selectors.matches("device.attributes['gpu.example.com'].x == 1", "gpu.example.com", device))
    assert results == [True, False, False, True]
    other = convert(Device, {"name": "d", "attributes": {"gpu.example.com/x": {"int": 1}}})
    assert selectors.matches("device.attributes['gpu.example.com'].x == 1", "other.example.com", other)


LISTS = convert(
    Device,
    {
        "name": "d",
        "attributes": {
            "models": {"strings": ["a", "b"]},
            "numa": {"ints": [0, 1]},
            "versions": {"versions": ["1.2.3"]},
            "ready": {"bool": True},
            "long": {"ints": [*range(49)]},
        },
    },
)
ATTRIBUTES = "device.attributes['gpu.example.com']"


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("{}.models.includes('b')", True),
        ("{}.models.includes('c')", False),
        ("{}.ready.includes(true)", True),
        ("{}.numa.includes('0')", False),
        ("{}.numa.exists(n, n == 1)", True),
        ("{}.models.size() == 2", True),
        ("{}.versions.includes(semver('1.2.3'))", True),
        ("{}.ready", True),
    ],
)
def test_lists_of_attributes(expression, selected):
    selectors = DeviceSelectors(consumable_capacity=True, list_attributes=True)
    assert selectors.matches(expression.format(ATTRIBUTES), "gpu.example.com", LISTS) is selected


def test_errors_of_lists():
    selectors = DeviceSelectors(consumable_capacity=True, list_attributes=True)
    with pytest.raises(DeviceSelectorError, match="cannot be applied to lists longer than 48 values"):
        selectors.matches(f"{ATTRIBUTES}.long.includes(48)", "gpu.example.com", LISTS)
    with pytest.raises(DeviceSelectorError, match="unsupported attribute value"):
        matches(f"{ATTRIBUTES}.ready", LISTS)
    with pytest.raises(DeviceSelectorError, match="undeclared reference to 'includes'"):
        matches(f"{ATTRIBUTES}.models.includes('b')", LISTS)


@pytest.mark.parametrize(
    ("attributes", "model"),
    [
        pytest.param({"model": {"string": "short"}}, "short", id="without domain"),
        pytest.param({"gpu.example.com/model": {"string": "full"}}, "full", id="with the driver's domain"),
        pytest.param(
            {"model": {"string": "short"}, "gpu.example.com/model": {"string": "full"}},
            "full",
            id="the full name first",
        ),
    ],
)
def test_attribute_of_the_drivers_domain(attributes, model):
    device = {"name": "d", "attributes": attributes}
    assert matches(f"device.attributes['gpu.example.com'].model == '{model}'", device)
    assert not matches("has(device.attributes['vendor.example.com'].model)", device)


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("device.attributes == device.attributes", True),
        ("device.attributes == device.capacity", False),
        ("size(device.attributes) == 2", True),
        ("device.attributes.all(domain, domain != 'other.example.com')", True),
        ("'gpu.example.com' in device.attributes", True),
        ("'other.example.com' in device.attributes", False),
        ("size(device.attributes['other.example.com']) == 0", True),
    ],
)
def test_attributes_are_maps_by_domain(expression, selected):
    assert matches(expression) is selected


def test_cached_results_are_bounded(monkeypatch):
    monkeypatch.setattr(device_selectors, "_MAX_RESULTS", 3)
    selectors = DeviceSelectors(consumable_capacity=True)
    for number in range(9):
        device = convert(Device, {"name": "d", "attributes": {"numa": {"int": number}}})
        expression = "device.attributes['gpu.example.com'].numa > 4"
        assert selectors.matches(expression, "gpu.example.com", device) is (number > 4)
        assert len(selectors._compiled(expression)._results) <= 3
