"""The nodes of an expression, and the errors that are found in one.

A node knows where it begins; the checker writes its type, and the overloads that a call means, into it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from kubeloop.devcluster.languages.cel.types import Type


class Literal:
    """value: in Python's form, or values.Uint."""

    __slots__ = ("at", "type", "value")
    type: Type

    def __init__(self, at: int, value: Any) -> None:
        self.at, self.value = at, value


class Ident:
    """`type_value`: the type that this name stands for, if it is not a variable's."""

    __slots__ = ("at", "name", "type", "type_value")
    type: Type

    def __init__(self, at: int, name: str) -> None:
        self.at, self.name = at, name
        self.type_value: Type | None = None


class Select:
    """operand.field; `test`: has(operand.field). `type_value`: the type that this stands for, if its name has dots."""

    __slots__ = ("at", "field", "operand", "test", "type", "type_value")
    type: Type

    def __init__(self, at: int, operand: Node, field: str, *, test: bool = False) -> None:
        self.at, self.operand, self.field, self.test = at, operand, field, test
        self.type_value: Type | None = None


class Call:
    """A function or operator. overloads: their identifiers; several where types are known only at run time."""

    __slots__ = ("args", "at", "name", "overloads", "target", "type")
    type: Type

    def __init__(self, at: int, name: str, args: list[Node], target: Node | None = None) -> None:
        self.at, self.name, self.args, self.target = at, name, args, target
        self.overloads: list[str] = []


class ListNode:
    """optional: indices of the elements that stand behind a question mark."""

    __slots__ = ("at", "elements", "optional", "type")
    type: Type

    def __init__(self, at: int, elements: list[Node], optional: frozenset[int] = frozenset()) -> None:
        self.at, self.elements, self.optional = at, elements, optional


class Entry:
    """An entry of a map, or a field of a struct."""

    __slots__ = ("at", "key", "optional", "value")

    def __init__(self, at: int, key: Node, value: Node, *, optional: bool) -> None:
        self.at, self.key, self.value, self.optional = at, key, value, optional


class MapNode:
    __slots__ = ("at", "entries", "type")
    type: Type

    def __init__(self, at: int, entries: list[Entry]) -> None:
        self.at, self.entries = at, entries


class Struct:
    """Type{field: value}. fields: their keys are literals."""

    __slots__ = ("at", "fields", "name", "type")
    type: Type

    def __init__(self, at: int, name: str, fields: list[Entry]) -> None:
        self.at, self.name, self.fields = at, name, fields


class Comprehension:
    """What macros become: `step` is done to the accumulator for each element while `condition` holds.

    `var` is the element of a list or the key of a map; if there is a second variable, the index or key, and `var2` the
    element or value. An empty range with condition false, as optMap() has it, binds the accumulator's name and no more.
    """

    __slots__ = ("accumulator", "at", "condition", "init", "range", "result", "step", "type", "var", "var2")
    type: Type

    def __init__(
        self, at: int, range_: Node, names: tuple[str, str], accumulator: str, parts: tuple[Node, Node, Node, Node]
    ) -> None:
        """names: of the variables, the second "" if there is one only; parts: init, condition, step, result."""
        self.at, self.range, self.accumulator = at, range_, accumulator
        self.var, self.var2 = names
        self.init, self.condition, self.step, self.result = parts

    @property
    def binds(self) -> bool:
        return isinstance(self.range, ListNode) and not self.range.elements


Node: TypeAlias = Literal | Ident | Select | Call | ListNode | MapNode | Struct | Comprehension

ACCUMULATOR = "@result"


def children(node: Node) -> list[Node]:
    """The nodes right below one, in the order in which they are evaluated."""
    match node:
        case Select():
            return [node.operand] if node.type_value is None else []
        case Call():
            return [*([node.target] if node.target is not None else ()), *node.args]
        case ListNode():
            return node.elements
        case MapNode():
            return [each for entry in node.entries for each in (entry.key, entry.value)]
        case Struct():
            return [entry.value for entry in node.fields]
        case Comprehension():
            return [node.range, node.init, node.condition, node.step, node.result]
    return []


def walk(node: Node) -> Iterable[Node]:
    """A node and all below it."""
    yield node
    for each in children(node):
        yield from walk(each)


class Issue:
    """One thing that is wrong with an expression. at: an offset in characters; -1: the expression as a whole."""

    __slots__ = ("at", "message")

    def __init__(self, at: int, message: str) -> None:
        self.at, self.message = at, message


class InstantiationError(Exception):
    """An expression that fails whatever it is given: a constant in it cannot be converted, or is no pattern."""


class ExpressionError(Exception):
    """An expression that cannot be compiled. Its text is what cel-go prints: places, the line, and a mark below it."""

    def __init__(self, source: str, issues: Iterable[Issue]) -> None:
        self.issues = sorted(issues, key=lambda each: each.at)
        super().__init__("\n".join(_displayed(source, each) for each in self.issues))


def _displayed(source: str, issue: Issue) -> str:
    if issue.at < 0:
        return f"ERROR: <input>:-1:0: {issue.message}"
    before = source[: issue.at]
    line = before.count("\n") + 1
    column = issue.at - (before.rfind("\n") + 1)
    told = f"ERROR: <input>:{line}:{column + 1}: {issue.message}"
    snippet = source.split("\n")[line - 1].replace("\t", " ")
    dots = "".join("." if char.isascii() else "\uff0e" for char in snippet[:column])
    mark = "\uff3e" if column < len(snippet) and not snippet[column].isascii() else "^"
    return f"{told}\n | {snippet}\n | {dots}{mark}"
