"""List of the field errors of one object."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_domain_prefixed_path
from support.objects.validation_causes import validator_causes


@pytest.mark.parametrize(
    ("add", "reason", "message"),
    [
        pytest.param(lambda e: e.required("a"), "FieldValueRequired", "Required value", id="required"),
        pytest.param(lambda e: e.required("a", "why"), "FieldValueRequired", "Required value: why", id="with a detail"),
        pytest.param(
            lambda e: e.invalid("a", "x", "why"), "FieldValueInvalid", 'Invalid value: "x": why', id="invalid"
        ),
        pytest.param(
            lambda e: e.invalid_without_value("a", "why"), "FieldValueInvalid", "Invalid value: why", id="no value"
        ),
        pytest.param(lambda e: e.duplicate("a", 1), "FieldValueDuplicate", "Duplicate value: 1", id="duplicate"),
        pytest.param(lambda e: e.not_found("a", "x"), "FieldValueNotFound", 'Not found: "x"', id="not found"),
        pytest.param(
            lambda e: e.not_supported("a", "x", ("y", "z")),
            "FieldValueNotSupported",
            'Unsupported value: "x": supported values: "y", "z"',
            id="not supported",
        ),
        pytest.param(lambda e: e.forbidden("a", "why"), "FieldValueForbidden", "Forbidden: why", id="forbidden"),
        pytest.param(lambda e: e.internal("a", "why"), "InternalError", "Internal error: why", id="internal"),
        pytest.param(
            lambda e: e.too_long("a", 1), "FieldValueTooLong", "Too long: may not be more than 1 byte", id="too long"
        ),
        pytest.param(
            lambda e: e.too_many("a", 3, 2),
            "FieldValueTooMany",
            "Too many: 3: must have at most 2 items",
            id="too many",
        ),
        pytest.param(
            lambda e: e.not_negative("a", -1),
            "FieldValueInvalid",
            "Invalid value: -1: must be greater than or equal to 0",
            id="negative",
        ),
        pytest.param(
            lambda e: e.immutable("a", 1, 2),
            "FieldValueInvalid",
            "Invalid value: 1: field is immutable",
            id="immutable",
        ),
    ],
)
def test_cause_of_a_field_error(add: Callable[[ErrorList], None], reason: str, message: str) -> None:
    errors = ErrorList()
    add(errors)
    assert errors == [{"reason": reason, "message": message, "field": "a"}]


def test_valid_values_add_no_error() -> None:
    errors = ErrorList()
    errors.not_negative("a", 0)
    errors.not_negative("a", None)
    errors.immutable("a", "x", "x")
    errors.invalid_each("a", "x", ())
    assert errors == []


def test_require_reports_an_empty_value_and_returns_whether_there_is_one() -> None:
    errors = ErrorList()
    assert [errors.require("a", value, "why") for value in ("x", "", [])] == [True, False, False]
    assert [error["message"] for error in errors] == ["Required value: why"] * 2


@pytest.mark.parametrize(
    ("text", "causes"),
    [
        pytest.param("acme.io/foo/bar", [], id="valid"),
        pytest.param("", ["p: Required value"], id="empty"),
        pytest.param(
            "acme.io/",
            ['p: Invalid value: "acme.io/": must be a domain-prefixed path (such as "acme.io/foo")'],
            id="no path",
        ),
    ],
)
def test_domain_prefixed_path_causes(text: str, causes: list[str]) -> None:
    assert validator_causes(validate_domain_prefixed_path, "p", text) == causes
