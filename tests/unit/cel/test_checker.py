"""Types of expressions, and type errors."""

from __future__ import annotations

import pytest

from kubeloop.cel.checker import check
from kubeloop.cel.declarations import overloads_by_name
from kubeloop.cel.parser import parse
from kubeloop.cel.syntax import Call, ExpressionError
from kubeloop.cel.types import BOOL, DYN, INT, STRING, Type, list_of, map_of, optional_of

VARIABLES = {"i": INT, "s": STRING, "l": list_of(INT), "m": map_of(STRING, INT), "d": DYN}


def type_of(source: str) -> Type:
    return check(source, parse(source), VARIABLES, overloads_by_name(), lambda _name: None)


@pytest.mark.parametrize(
    ("source", "type_"),
    [
        ("i + 1", INT), ("s + 'a'", STRING), ("i < 1u", BOOL), ("l[0]", INT), ("m.x", INT),
        ("m[?'x']", optional_of(INT)),
        ("d.x.y", DYN), ("l.map(x, string(x))", list_of(STRING)), ("l.filter(x, x > 0)", list_of(INT)),
        ("true ? i : d", DYN), ("{'a': [1]}", map_of(STRING, list_of(INT))), ("size(s)", INT),
    ],
)  # fmt: skip
def test_type_of_an_expression(source: str, type_: Type):
    assert type_of(source) == type_


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x", "1:1: undeclared reference to 'x' (in container '')"),
        ("i + s", "1:3: found no matching overload for '_+_' applied to '(int, string)'"),
        ("s.foo()", "1:6: undeclared reference to 'foo' (in container '')"),
        ("i.x", "1:2: type 'int' does not support field selection"),
        ("l.all(x, x)", "1:10: expected type 'bool' but found 'int'"),
    ],
)
def test_type_error(source: str, message: str):
    with pytest.raises(ExpressionError) as raised:
        type_of(source)
    assert str(raised.value).startswith(f"ERROR: <input>:{message}")


@pytest.mark.parametrize(("source", "count"), [("i + 1", 1), ("d + d", 9)])
def test_overloads_are_resolved_as_far_as_types_are_known(source: str, count: int):
    node = parse(source)
    check(source, node, VARIABLES, overloads_by_name(), lambda _name: None)
    assert isinstance(node, Call)
    assert (len(node.overloads), "add_int64" in node.overloads) == (count, True)
