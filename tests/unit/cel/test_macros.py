"""Expansion of macros."""

from __future__ import annotations

import pytest

from kubeloop.cel.macros import MacroError, expand
from kubeloop.cel.syntax import Comprehension, Ident, Literal, Node, Select

LIST, X, Y, TRUE = Ident(0, "l"), Ident(1, "x"), Ident(2, "y"), Literal(3, True)


@pytest.mark.parametrize(
    ("name", "args", "names"),
    [
        ("all", [X, TRUE], ("x", "")),
        ("exists", [X, Y, TRUE], ("x", "y")),
        ("filter", [X, TRUE], ("x", "")),
        ("map", [X, TRUE, TRUE], ("x", "")),
        ("transformMap", [X, Y, TRUE], ("x", "y")),
    ],
)
def test_macro_expands_to_a_comprehension(name: str, args: list[Node], names: tuple[str, str]):
    expansion = expand(0, name, args, LIST)
    assert isinstance(expansion, Comprehension)
    assert (expansion.range, expansion.var, expansion.var2) == (LIST, *names)


@pytest.mark.parametrize(
    ("name", "args", "target"),
    [
        pytest.param("all", [X], LIST, id="another number of arguments"),
        pytest.param("all", [X, TRUE], None, id="function"),
        pytest.param("size", [], LIST, id="another name"),
    ],
)
def test_other_calls_are_no_macros(name: str, args: list[Node], target: Node | None):
    assert expand(0, name, args, target) is None


def test_has_is_a_presence_test():
    expansion = expand(0, "has", [Select(1, LIST, "f")], None)
    assert isinstance(expansion, Select)
    assert (expansion.test, expansion.operand, expansion.field) == (True, LIST, "f")


@pytest.mark.parametrize(
    ("name", "args", "target", "offset", "message"),
    [
        ("has", [X], None, 1, "invalid argument to has() macro"),
        ("all", [TRUE, TRUE], LIST, 3, "argument must be a simple name"),
        ("all", [Ident(5, "__result__"), TRUE], LIST, 5, "iteration variable overwrites accumulator variable"),
        ("all", [X, Ident(5, "x"), TRUE], LIST, 5, "duplicate variable name: x"),
    ],
)
def test_invalid_argument_of_a_macro(name: str, args: list[Node], target: Node | None, offset: int, message: str):
    with pytest.raises(MacroError) as raised:
        expand(0, name, args, target)
    assert (raised.value.offset, str(raised.value)) == (offset, message)
