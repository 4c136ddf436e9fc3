"""Functions that Kubernetes adds: URLs, addresses, quantities, versions and formats."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.cel.program import CelProgram, EvaluationResult
from kubeloop.cel.syntax import ExpressionError
from kubeloop.cel.types import DYN
from kubeloop.cel.values import CelError
from kubeloop.kube.cel_library import (
    KUBERNETES_FUNCTIONS,
    KUBERNETES_LIBRARY,
    cidr,
    ip,
    quantity,
    semver,
    url,
)

DIGITS = "9" * 5000  # int() rejects that many


def call(name: str, *args: Any) -> Any:
    return KUBERNETES_FUNCTIONS[name](*args)


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("isURL", ("https://a/b",), True), ("isURL", ("../a",), False),
        ("getHost", (url("https://[::1]:80/"),), "[::1]:80"), ("getHostname", (url("https://a:80/"),), "a"),
        ("getPort", (url("https://a:80/"),), "80"), ("getEscapedPath", (url("https://a/b c"),), "/b%20c"),
        ("getQuery", (url("https://a/?x=1&x=2"),), {"x": ["1", "2"]}),
        ("isIP", ("1.2.3.4",), True), ("isIP", ("1.2.3",), False), ("ip.isCanonical", ("::FFFF",), False),
        ("family", (ip("::1"),), 6), ("isLoopback", (ip("127.0.0.1"),), True), ("isUnspecified", (ip("::"),), True),
        ("isCIDR", ("10.0.0.0/8",), True), ("containsIP", (cidr("10.0.0.0/8"), "10.1.2.3"), True),
        ("containsCIDR", (cidr("10.0.0.0/8"), "11.0.0.0/16"), False), ("prefixLength", (cidr("10.0.0.0/8"),), 8),
        ("isQuantity", ("1Gi",), True), ("isQuantity", ("1 G",), False), ("asInteger", (quantity("2k"),), 2000),
        ("isInteger", (quantity("1.5"),), False), ("sign", (quantity("-1"),), -1),
        ("isGreaterThan", (quantity("1Gi"), quantity("1G")), True),
        ("compareTo", (semver("1.2.3-rc.1"), semver("1.2.3")), -1), ("isSemver", ("v1.2",), False),
        ("isSemver", ("v1.2", True), True), ("major", (semver("1.2.3"),), 1),
    ],
)  # fmt: skip
def test_value_of_a_function(name: str, args: tuple[Any, ...], expected: Any):
    assert call(name, *args) == expected


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("ip", ("x",), 'IP Address "x" parse error during conversion from string: ParseAddr("x"): unable to parse IP'),
        ("asInteger", (quantity("1.5"),), "cannot convert value to integer"),
        ("url", ("../a",), 'URL parse error during conversion from string: parse "../a": invalid URI for request'),
    ],
)
def test_error_of_a_function(name: str, args: tuple[Any, ...], message: str):
    with pytest.raises(CelError) as raised:
        call(name, *args)
    assert str(raised.value) == message


def test_named_format_reports_its_errors():
    dns = call("format.named", "dns1123Label")
    assert dns.present
    assert call("validate", dns.value, "a-b").present is False
    assert call("validate", dns.value, "a.b").value == ["must not contain dots"]
    assert call("format.named", "none").present is False


def run(expression: str, **variables: Any) -> EvaluationResult:
    return CelProgram(expression, dict.fromkeys(variables, DYN), KUBERNETES_LIBRARY).run(variables)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("semver('1.2.' + x)", f'strconv.ParseUint: parsing "{DIGITS}": value out of range'),
        ("semver('1.2.3-' + x)", f'strconv.ParseUint: parsing "{DIGITS}": value out of range'),
        ("quantity(x)", "unable to parse numeric part of quantity"),
        ("quantity('1').add(quantity('1e99999'))", "unable to parse numeric part of quantity"),
    ],
)
def test_oversized_arguments_return_an_error(expression: str, error: str):
    assert run(expression, x=DIGITS).error == error


def test_quantities_beyond_float_are_infinite():
    assert run("quantity('1e9999').asApproximateFloat() > 1e300").value is True


def test_addresses_convert_to_strings_and_quantities_do_not():
    assert run("string(ip('10.0.0.1')) + ' ' + string(cidr('10.0.0.0/8'))").value == "10.0.0.1 10.0.0.0/8"
    with pytest.raises(ExpressionError, match="found no matching overload for 'string'"):
        run("string(quantity('1'))")


def test_functions_of_the_library_are_unknown_to_other_programs():
    with pytest.raises(ExpressionError, match="undeclared reference to 'quantity'"):
        CelProgram("quantity('1')", {})


def test_every_function_has_an_overload_and_the_reverse():
    assert set(KUBERNETES_LIBRARY.overloads) - {"string"} == set(KUBERNETES_FUNCTIONS)
