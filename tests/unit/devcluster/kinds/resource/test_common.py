"""Lists, names and conditions in kinds of resource.k8s.io."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.resource.common import (
    validate_attribute_name,
    validate_binding_conditions,
    validate_label,
    validate_list,
    validate_pool_name,
    validate_raw_object,
)
from support.objects.validation_causes import validator_causes


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("model", 0),
        ("_a1", 0),
        ("gpu.example.com/model", 0),
        ("a/b/c", 0),  # accepted by kube-apiserver, too
        ("1a", 1),
        ("a-b", 1),
        ("a" * 33, 1),
        ("", 1),
        ("/", 2),
        ("A_b/model", 1),
        (f"{'a' * 64}/model", 1),
    ],
)
def test_attribute_name(name: str, causes: int) -> None:
    assert len(validator_causes(validate_attribute_name, "p", name)) == causes


@pytest.mark.parametrize(("name", "causes"), [("a/b.c", 0), ("", 1), ("a//b", 1), ("/".join(["p" * 50] * 5), 1)])
def test_pool_name(name: str, causes: int) -> None:
    assert len(validator_causes(validate_pool_name, "p", name)) == causes


def test_items_of_a_list_that_is_too_long_do_not_count() -> None:
    assert validator_causes(validate_list, "p", ["A"] * 3, 2, validate_label, key=str) == [
        "p: Too many: 3: must have at most 2 items"
    ]
    assert validator_causes(validate_list, "p", ["a", "b", "a"], 3, validate_label, key=str) == [
        'p[2]: Duplicate value: "a"'
    ]


def test_binding_conditions_need_failure_conditions() -> None:
    assert validator_causes(validate_binding_conditions, "p", {"bindingFailureConditions": ["a"]}) == [
        "p.bindingConditions: Invalid value: null: bindingConditions are required to use bindingFailureConditions"
    ]
    assert validator_causes(validate_binding_conditions, "p", {"bindingConditions": ["a"] * 5}) == [
        "p.bindingConditions: Too many: 5: must have at most 4 items",
        *(f'p.bindingConditions[{number}]: Duplicate value: "a"' for number in range(1, 5)),
        "p.bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use "
        "bindingConditions",
    ]


@pytest.mark.parametrize(
    ("value", "causes"),
    [
        ({}, []),
        (None, ["p: Required value"]),
        ("text", ['p: Invalid value: "<value omitted>": must be a valid JSON object']),
        ({"a": "x" * 10240}, ["p: Too long: may not be more than 10240 bytes"]),
    ],
)
def test_opaque_data_is_an_object(value: object, causes: list[str]) -> None:
    assert validator_causes(validate_raw_object, "p", value) == causes
