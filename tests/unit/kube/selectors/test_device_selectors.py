"""CEL selectors of devices: which expressions compile, and the errors of the others."""

from __future__ import annotations

import pytest

from kubeloop.kube.selectors.device_selectors import DeviceSelectorError, compile_device_selector

INCLUDES = 'device.attributes["a.com"].models.includes("A100")'


@pytest.mark.parametrize(
    ("expression", "gates", "error"),
    [
        ('device.driver == "a" && device.capacity["a"].b.isGreaterThan(quantity("1"))', (False, False), ""),
        ('cel.bind(a, device.attributes["a"], a.b == 1)', (False, False), ""),
        ('device.attributes["a"].b', (False, False), ""),
        ('device.attributes["a"].b', (False, True), ""),
        ("device.allowMultipleAllocations", (True, False), ""),
        ("device.allowMultipleAllocations", (False, False), "undefined field 'allowMultipleAllocations'"),
        (INCLUDES, (False, True), ""),
        (INCLUDES, (False, False), "compilation failed: ERROR: <input>:1:43: undeclared reference to 'includes'"),
        ("device.driver", (False, False), "must evaluate to bool or the unknown type, not string"),
        ('"a".matches("[")', (False, False), "compilation failed: ERROR: <input>:1:13: invalid matches argument"),
        ("", (False, False), "compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>'"),
    ],
)
def test_selector_compiles_or_has_kubernetes_error(expression: str, gates: tuple[bool, bool], error: str) -> None:
    consumable_capacity, list_attributes = gates
    if not error:
        compile_device_selector(expression, consumable_capacity=consumable_capacity, list_attributes=list_attributes)
        return
    with pytest.raises(DeviceSelectorError) as raised:
        compile_device_selector(expression, consumable_capacity=consumable_capacity, list_attributes=list_attributes)
    assert error in str(raised.value)
