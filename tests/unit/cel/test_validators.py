"""Literals that would fail in every evaluation."""

from __future__ import annotations

from contextlib import suppress

import pytest

from kubeloop.cel.checker import check
from kubeloop.cel.parser import parse
from kubeloop.cel.syntax import ExpressionError
from kubeloop.cel.types import STRING
from kubeloop.cel.validators import check_literals


def issues(source: str) -> list[str]:
    """Return the issues of check_literals() for an expression with the variable `s`."""
    node = parse(source)
    with suppress(ExpressionError):  # which has the same issues
        check(source, node, {"s": STRING}, {}, lambda _name: None)
    return [f"{issue.offset}: {issue.message}" for issue in check_literals(node)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("duration('1h') == duration(s)", []),
        ("duration('1 hour')", ["9: invalid duration argument"]),
        ("timestamp('today')", ["10: invalid timestamp argument"]),
        ("s.matches('[a')", ["10: invalid matches argument"]),
        ("[1, 'a']", ["4: expected type 'int' but found 'string'"]),
        ("{'a': 1, 'b': true}", ["14: expected type 'int' but found 'bool'"]),
        ("'%s %d'.format([s, 1])", []),
        (
            "'%d'.format(['a'])",
            ["13: error during formatting: decimal clause can only be used on integers, was given string"],
        ),
    ],
)
def test_literals(source: str, expected: list[str]):
    assert issues(source) == expected
