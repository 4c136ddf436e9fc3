"""Syntax trees and syntax errors."""

from __future__ import annotations

import pytest

from kubeloop.cel.parser import parse
from kubeloop.cel.syntax import (
    Call,
    ExpressionError,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)


def text(node: Node) -> str:
    """Return a node in the notation function(target, arguments)."""
    match node:
        case Literal():
            return repr(node.value)
        case Ident():
            return node.name
        case Select():
            return f"{'has ' if node.test else ''}{text(node.operand)}.{node.field}"
        case Call():
            target = [] if node.target is None else [node.target]
            return f"{node.name}({', '.join(map(text, [*target, *node.args]))})"
        case ListNode():
            return f"[{', '.join(map(text, node.elements))}]"
        case MapNode():
            return f"{{{', '.join(f'{text(entry.key)}: {text(entry.value)}' for entry in node.entries)}}}"
    return type(node).__name__


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("a + b * c", "_+_(a, _*_(b, c))"),
        ("(a + b) * c", "_*_(_+_(a, b), c)"),
        ("a - b - c", "_-_(_-_(a, b), c)"),
        ("!a && b || c", "_||_(_&&_(!_(a), b), c)"),
        ("a ? b : c ? d : e", "_?_:_(a, b, _?_:_(c, d, e))"),
        ("a.b(c)[d]", "_[_](b(a, c), d)"),
        ("a in [1, -1]", "@in(a, [1, -1])"),
        ("{'a': x.?b}", "{'a': _?._(x, 'b')}"),
        ("has(a.b)", "has a.b"),
        ("a.all(x, x)", "Comprehension"),
    ],
)
def test_tree_of_an_expression(source: str, tree: str):
    assert text(parse(source)) == tree


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a +", "<input>:1:4: Syntax error: mismatched input '<EOF>' expecting"),
        ("9223372036854775808", "<input>:1:1: invalid int literal"),
        ("has(a)", "<input>:1:5: invalid argument to has() macro"),
        ("a" * 100_001, "expression code point size exceeds limit: size: 100001, limit 100000"),
    ],
    ids=["open operator", "overflow", "macro", "length"],
)
def test_syntax_error(source: str, message: str):
    with pytest.raises(ExpressionError) as raised:
        parse(source)
    assert message in str(raised.value)
