"""Macros: calls that the parser expands to comprehensions and presence tests.

Sources: cel-go parser/macro.go, cel/library.go (optMap), ext/comprehensions.go, ext/lists.go (sortBy),
ext/bindings.go.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

from kubeloop.cel.syntax import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)

_UNUSED = "#unused"
_SORTED = "@__sortBy_input__"


class MacroError(Exception):
    """A macro with an invalid argument. `offset`: position of the argument."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


def expand(offset: int, name: str, args: list[Node], target: Node | None, *, bindings: bool = False) -> Node | None:
    """Return the expansion of a macro call, or None if the call is not a macro. Raises MacroError.

    bindings: cel.bind() is a macro.
    """
    if target is None:
        return _has(offset, args[0]) if name == "has" and len(args) == 1 else None
    if bindings and (name, len(args)) == ("bind", 3) and isinstance(target, Ident) and target.name == "cel":
        if not isinstance(args[0], Ident):
            raise MacroError(args[0].offset, "cel.bind() variable names must be simple identifiers")
        return _bind(offset, args[0].name, args[1], args[2])
    expander, argument_counts = _MACROS.get(name, (None, ()))
    expansion: Node | None = expander(offset, target, args) if len(args) in argument_counts else None
    return expansion


def _has(offset: int, arg: Node) -> Node:
    if not isinstance(arg, Select) or arg.test:
        raise MacroError(arg.offset, "invalid argument to has() macro")
    return Select(offset, arg.operand, arg.field, test=True)


def _accumulator(offset: int) -> Ident:
    return Ident(offset, ACCUMULATOR)


def _name(arg: Node, message: str) -> str:
    if not isinstance(arg, Ident):
        raise MacroError(arg.offset, message)
    if arg.name in (ACCUMULATOR, "__result__"):
        raise MacroError(arg.offset, "iteration variable overwrites accumulator variable")
    return arg.name


def _names(args: list[Node], count: int) -> tuple[str, str]:
    """Return the iteration variables of a macro that has `count` of them, the second "" if there is one."""
    first = _name(args[0], "argument must be a simple name")
    if count == 1:
        return first, ""
    second = _name(args[1], "argument must be a simple name")
    if first == second:
        raise MacroError(args[1].offset, f"duplicate variable name: {first}")
    return first, second


def _quantifier(operator: str, offset: int, target: Node, args: list[Node]) -> Node:
    """Return all(), whose operator is &&, or exists(), whose operator is ||."""
    is_all, accumulator = operator == "_&&_", _accumulator(offset)
    undecided = accumulator if is_all else Call(offset, "!_", [accumulator])
    condition = Call(offset, "@not_strictly_false", [undecided])
    step = Call(offset, operator, [_accumulator(offset), args[-1]])
    parts = (Literal(offset, is_all), condition, step, _accumulator(offset))
    return Comprehension(offset, target, _names(args, len(args) - 1), ACCUMULATOR, parts)


def _exists_one(offset: int, target: Node, args: list[Node]) -> Node:
    increment = Call(offset, "_+_", [_accumulator(offset), Literal(offset, 1)])
    step = Call(offset, "_?_:_", [args[-1], increment, _accumulator(offset)])
    result = Call(offset, "_==_", [_accumulator(offset), Literal(offset, 1)])
    names = _names(args, len(args) - 1)
    return Comprehension(offset, target, names, ACCUMULATOR, (Literal(offset, 0), Literal(offset, True), step, result))


def _fold(offset: int, target: Node, names: tuple[str, str], init: Node, step: Node, filter_: Node | None) -> Node:
    """Return a comprehension that adds the elements that pass the filter to a list or map."""
    if filter_ is not None:
        step = Call(offset, "_?_:_", [filter_, step, _accumulator(offset)])
    return Comprehension(offset, target, names, ACCUMULATOR, (init, Literal(offset, True), step, _accumulator(offset)))


def _map(offset: int, target: Node, args: list[Node]) -> Node:
    name = _name(args[0], "argument is not an identifier")
    step = Call(offset, "_+_", [_accumulator(offset), ListNode(offset, [args[-1]])])
    return _fold(offset, target, (name, ""), ListNode(offset, []), step, args[1] if len(args) == 3 else None)


def _filter(offset: int, target: Node, args: list[Node]) -> Node:
    name = _name(args[0], "argument is not an identifier")
    step = Call(offset, "_+_", [_accumulator(offset), ListNode(offset, [args[0]])])
    return _fold(offset, target, (name, ""), ListNode(offset, []), step, args[1])


def _transform_list(offset: int, target: Node, args: list[Node]) -> Node:
    step = Call(offset, "_+_", [_accumulator(offset), ListNode(offset, [args[-1]])])
    return _fold(offset, target, _names(args, 2), ListNode(offset, []), step, args[2] if len(args) == 4 else None)


def _transform_map(offset: int, target: Node, args: list[Node]) -> Node:
    names = _names(args, 2)
    step = Call(offset, "cel.@mapInsert", [_accumulator(offset), Ident(offset, names[0]), args[-1]])
    return _fold(offset, target, names, MapNode(offset, []), step, args[2] if len(args) == 4 else None)


def _transform_map_entry(offset: int, target: Node, args: list[Node]) -> Node:
    step = Call(offset, "cel.@mapInsert", [_accumulator(offset), args[-1]])
    return _fold(offset, target, _names(args, 2), MapNode(offset, []), step, args[2] if len(args) == 4 else None)


def _bind(offset: int, name: str, value: Node, result: Node) -> Comprehension:
    """Return `result` with `name` bound to `value`."""
    parts = (value, Literal(offset, False), Ident(offset, name), result)
    return Comprehension(offset, ListNode(offset, []), (_UNUSED, ""), name, parts)


def _opt_map(offset: int, target: Node, args: list[Node]) -> Node:
    mapped = _bind_optional(offset, target, args, "optMap")
    return _if_present(offset, target, Call(offset, "optional.of", [mapped]))


def _opt_flat_map(offset: int, target: Node, args: list[Node]) -> Node:
    return _if_present(offset, target, _bind_optional(offset, target, args, "optFlatMap"))


def _bind_optional(offset: int, target: Node, args: list[Node], macro: str) -> Node:
    if not isinstance(args[0], Ident):
        raise MacroError(args[0].offset, f"{macro}() variable name must be a simple identifier")
    return _bind(offset, args[0].name, Call(offset, "value", [], deepcopy(target)), args[1])


def _if_present(offset: int, target: Node, then: Node) -> Node:
    return Call(offset, "_?_:_", [Call(offset, "hasValue", [], target), then, Call(offset, "optional.none", [])])


def _sort_by(offset: int, target: Node, args: list[Node]) -> Node:
    if not isinstance(target, ListNode | Select | Ident | Comprehension | Call):
        message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        raise MacroError(target.offset, message)
    keys = _map(offset, Ident(offset, _SORTED), args)
    return _bind(offset, _SORTED, target, Call(offset, "@sortByAssociatedKeys", [keys], Ident(offset, _SORTED)))


_MACROS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "all": (partial(_quantifier, "_&&_"), (2, 3)),
    "exists": (partial(_quantifier, "_||_"), (2, 3)),
    "exists_one": (_exists_one, (2, 3)),
    "existsOne": (_exists_one, (3,)),
    "map": (_map, (2, 3)),
    "filter": (_filter, (2,)),
    "transformList": (_transform_list, (3, 4)),
    "transformMap": (_transform_map, (3, 4)),
    "transformMapEntry": (_transform_map_entry, (3, 4)),
    "optMap": (_opt_map, (2,)),
    "optFlatMap": (_opt_flat_map, (2,)),
    "sortBy": (_sort_by, (2,)),
}
"""Macro expanders by name, with their numbers of arguments."""
