"""Nodes of the syntax tree of a CEL expression, and its compile errors.

Every node has the offset of its first character. The checker stores types and resolved overloads in the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from kubeloop.cel.types import Type


class Literal:
    """A constant. `value` is a Python value, or values.Uint for an unsigned integer."""

    __slots__ = ("offset", "type", "value")
    type: Type

    def __init__(self, offset: int, value: Any) -> None:
        self.offset, self.value = offset, value


class Ident:
    """An identifier. `type_value` is the type that it denotes, if it names a type and not a variable."""

    __slots__ = ("name", "offset", "type", "type_value")
    type: Type

    def __init__(self, offset: int, name: str) -> None:
        self.offset, self.name = offset, name
        self.type_value: Type | None = None


class Select:
    """Field selection operand.field, or has(operand.field) if `test`.

    `type_value` is the type that a dotted name such as google.protobuf.Duration denotes.
    """

    __slots__ = ("field", "offset", "operand", "test", "type", "type_value")
    type: Type

    def __init__(self, offset: int, operand: Node, field: str, *, test: bool = False) -> None:
        self.offset, self.operand, self.field, self.test = offset, operand, field, test
        self.type_value: Type | None = None


class Call:
    """A function call or operator. `overloads`: identifiers; more than one if the types are only known at run time."""

    __slots__ = ("args", "name", "offset", "overloads", "target", "type")
    type: Type

    def __init__(self, offset: int, name: str, args: list[Node], target: Node | None = None) -> None:
        self.offset, self.name, self.args, self.target = offset, name, args, target
        self.overloads: list[str] = []


class ListNode:
    """A list literal. `optional`: indices of the elements marked with a question mark."""

    __slots__ = ("elements", "offset", "optional", "type")
    type: Type

    def __init__(self, offset: int, elements: list[Node], optional: frozenset[int] = frozenset()) -> None:
        self.offset, self.elements, self.optional = offset, elements, optional


class MapEntry:
    """An entry of a map literal, or a field of a struct literal."""

    __slots__ = ("key", "offset", "optional", "value")

    def __init__(self, offset: int, key: Node, value: Node, *, optional: bool) -> None:
        self.offset, self.key, self.value, self.optional = offset, key, value, optional


class MapNode:
    __slots__ = ("entries", "offset", "type")
    type: Type

    def __init__(self, offset: int, entries: list[MapEntry]) -> None:
        self.offset, self.entries = offset, entries


class StructLiteral:
    """A struct literal Type{field: value}. The keys of `fields` are Literal nodes."""

    __slots__ = ("fields", "name", "offset", "type")
    type: Type

    def __init__(self, offset: int, name: str, fields: list[MapEntry]) -> None:
        self.offset, self.name, self.fields = offset, name, fields


class Comprehension:
    """The expansion of a macro: `step` updates the accumulator for each element while `condition` is true.

    With one variable, `var` is the list element or map key. With two, `var` is the index or key and `var2` the element
    or value. An empty range (from optMap() and sortBy()) only binds `init` to the accumulator's name.
    """

    __slots__ = ("accumulator", "condition", "init", "offset", "range", "result", "step", "type", "var", "var2")
    type: Type

    def __init__(
        self, offset: int, range_: Node, names: tuple[str, str], accumulator: str, parts: tuple[Node, Node, Node, Node]
    ) -> None:
        """names: the iteration variables, the second "" if unused. parts: init, condition, step, result."""
        self.offset, self.range, self.accumulator = offset, range_, accumulator
        self.var, self.var2 = names
        self.init, self.condition, self.step, self.result = parts

    @property
    def binds(self) -> bool:
        return isinstance(self.range, ListNode) and not self.range.elements


Node: TypeAlias = Literal | Ident | Select | Call | ListNode | MapNode | StructLiteral | Comprehension

ACCUMULATOR = "@result"


def children(node: Node) -> list[Node]:
    """Return the direct children of `node` in evaluation order."""
    match node:
        case Select():
            return [node.operand] if node.type_value is None else []
        case Call():
            return [*([node.target] if node.target is not None else ()), *node.args]
        case ListNode():
            return node.elements
        case MapNode():
            return [child for entry in node.entries for child in (entry.key, entry.value)]
        case StructLiteral():
            return [entry.value for entry in node.fields]
        case Comprehension():
            return [node.range, node.init, node.condition, node.step, node.result]
    return []


def walk(node: Node) -> Iterable[Node]:
    """Yield `node` and all its descendants."""
    yield node
    for child in children(node):
        yield from walk(child)


class Issue:
    """One compile error. `offset`: position in characters, or -1 for the whole expression."""

    __slots__ = ("message", "offset")

    def __init__(self, offset: int, message: str) -> None:
        self.offset, self.message = offset, message


class InstantiationError(Exception):
    """A constant argument cannot be converted or is an invalid pattern, so the expression would always fail."""


class ExpressionError(Exception):
    """The expression does not compile. The message has cel-go's form: position, source line, and a marker below it."""

    def __init__(self, source: str, issues: Iterable[Issue]) -> None:
        self.issues = sorted(issues, key=lambda issue: issue.offset)
        super().__init__("\n".join(_displayed(source, issue) for issue in self.issues))


def _displayed(source: str, issue: Issue) -> str:
    if issue.offset < 0:
        return f"ERROR: <input>:-1:0: {issue.message}"
    if not source:
        return f"ERROR: <input>:1:0: {issue.message}"
    before = source[: issue.offset]
    line = before.count("\n") + 1
    column = issue.offset - (before.rfind("\n") + 1)
    header = f"ERROR: <input>:{line}:{column + 1}: {issue.message}"
    snippet = source.split("\n")[line - 1].replace("\t", " ")
    dots = "".join("." if char.isascii() else "\uff0e" for char in snippet[:column])
    mark = "\uff3e" if column < len(snippet) and not snippet[column].isascii() else "^"
    return f"{header}\n | {snippet}\n | {dots}{mark}"
