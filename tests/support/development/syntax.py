"""Statements of a module, without the expressions, of which it has ten times as many."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below a module or a statement, with handlers of exceptions and cases, in any order."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        for name in _BLOCKS:
            if block := getattr(node, name, None):
                nodes.extend(block)
                yield from block
