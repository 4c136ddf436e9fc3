"""Checks of single values that several kinds share."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.validation.common.error_list import (
    header_name,
    is_valid_selector,
    is_zero_int_or_percent,
    selector_matches,
    validate_at_most_100_percent,
    validate_label_selector,
    validate_labels,
    validate_local_path,
    validate_local_path_not_reserved,
    validate_port_number_or_name,
    validate_positive_int_or_percent,
)
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes


@pytest.mark.parametrize(
    ("port", "causes"),
    [
        pytest.param(65535, [], id="highest port"),
        pytest.param("http", [], id="name"),
        pytest.param(65536, ["p: Invalid value: 65536: must be between 1 and 65535, inclusive"], id="above the range"),
        pytest.param("80", ['p: Invalid value: "80": must contain at least one letter (a-z)'], id="number as a name"),
        pytest.param(
            "a-name-of-sixteen",
            ['p: Invalid value: "a-name-of-sixteen": must be no more than 15 characters'],
            id="long name",
        ),
    ],
)
def test_port_number_or_name_causes(port: int | str, causes: list[str]) -> None:
    assert validator_causes(validate_port_number_or_name, "p", port) == causes


@pytest.mark.parametrize(
    ("value", "causes"),
    [
        pytest.param(None, [], id="unset"),
        pytest.param(200, [], id="number"),
        pytest.param("100%", [], id="100 percent"),
        pytest.param("101%", ['p: Invalid value: "101%": must not be greater than 100%'], id="101 percent"),
        pytest.param(-1, ["p: Invalid value: -1: must be greater than or equal to 0"], id="negative number"),
        pytest.param(
            "-1%",
            ["p: Invalid value: \"-1%\": a valid percent string must be a numeric string followed by an ending '%'"],
            id="negative percentage",
        ),
    ],
)
def test_int_or_percent_causes(value: int | str | None, causes: list[str]) -> None:
    checks = (validate_positive_int_or_percent, validate_at_most_100_percent)
    assert [cause for check in checks for cause in validator_causes(check, "p", value)] == causes


@pytest.mark.parametrize(("value", "is_zero"), [(0, True), ("0%", True), (1, False), ("1%", False), (None, True)])
def test_zero_int_or_percent(value: int | str | None, is_zero: bool) -> None:
    assert is_zero_int_or_percent(value) == is_zero


@pytest.mark.parametrize(
    ("path", "causes", "reserved"),
    [
        pytest.param("a/b..c", [], [], id="relative"),
        pytest.param("/a", ["must be a relative path"], [], id="absolute"),
        pytest.param("../a", ["must not contain '..'"], [], id="parent"),
        pytest.param("..a", [], ["must not start with '..'"], id="name of the kubelet"),
    ],
)
def test_local_path_causes(path: str, causes: list[str], reserved: list[str]) -> None:
    texts = [f'p: Invalid value: "{path}": {cause}' for cause in causes]
    assert validator_causes(validate_local_path, "p", path) == texts
    texts += [f'p: Invalid value: "{path}": {cause}' for cause in reserved]
    assert validator_causes(validate_local_path_not_reserved, "p", path) == texts


def test_header_names() -> None:
    assert header_name("X-Header-1") == ()
    [problem] = header_name("X_Header")
    assert problem.startswith("a valid HTTP header must consist of alphanumeric characters or '-'")


def test_label_causes_are_sorted_by_key() -> None:
    assert validator_causes(validate_labels, "labels", {"b": "x" * 64, "a/": "v", "ok": ""}) == [
        'labels: Invalid value: "a/": name part must be non-empty',
        "labels: Invalid value: \"a/\": name part must consist of alphanumeric characters, '-', '_' or '.', and "
        "must start and end with an alphanumeric character",
        f'labels: Invalid value: "{"x" * 64}": must be no more than 63 bytes',
    ]


def expression(operator: str, *values: str) -> JSON:
    return {"matchExpressions": [{"key": "a", "operator": operator, **({"values": [*values]} if values else {})}]}


@pytest.mark.parametrize(
    ("selector", "causes"),
    [
        pytest.param(None, [], id="none"),
        pytest.param(expression("In", "b"), [], id="valid"),
        pytest.param(
            expression("NotIn"),
            ["values: Required value: must be specified when `operator` is 'In' or 'NotIn'"],
            id="NotIn without values",
        ),
        pytest.param(
            expression("DoesNotExist", "b"),
            ["values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"],
            id="DoesNotExist with values",
        ),
        pytest.param(
            expression("Gt", "1"), ['operator: Invalid value: "Gt": not a valid selector operator'], id="node operator"
        ),
    ],
)
def test_label_selector_causes(selector: JSON | None, causes: list[str]) -> None:
    expected = [f"s.matchExpressions[0].{cause}" for cause in causes]
    assert validator_causes(validate_label_selector, "s", selector) == expected
    assert is_valid_selector(selector) == (not causes)


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param(None, False, id="none"),
        pytest.param({}, True, id="empty"),
        pytest.param({"matchLabels": {"a": "1"}}, True, id="label"),
        pytest.param({"matchLabels": {"a": "1", "b": "2"}}, False, id="missing label"),
        pytest.param(expression("In", "0", "1"), True, id="In"),
        pytest.param(expression("NotIn", "1"), False, id="NotIn"),
        pytest.param(expression("Exists"), True, id="Exists"),
        pytest.param(expression("DoesNotExist"), False, id="DoesNotExist"),
    ],
)
def test_selector_matches_labels(selector: JSON | None, matches: bool) -> None:
    assert selector_matches(selector, {"a": "1"}) == matches
