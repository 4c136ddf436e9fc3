"""Macros: calls that are not functions but stand for comprehensions and presence tests.

Sources: cel-go parser/macro.go, cel/library.go (optMap), ext/comprehensions.go, ext/lists.go (sortBy).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from kubeloop.devcluster.languages.cel.syntax import (
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
    """A macro whose arguments do not fit. at: the offset of the argument."""

    def __init__(self, at: int, told: str) -> None:
        super().__init__(told)
        self.at = at


def expand(at: int, name: str, args: list[Node], target: Node | None) -> Node | None:
    """What a call stands for; None if it is no macro. Raises MacroError."""
    if target is None:
        return _has(at, args[0]) if name == "has" and len(args) == 1 else None
    make = _MACROS.get((name, len(args)))
    found: Node | None = None if make is None else make(at, target, args)
    return found


def _has(at: int, arg: Node) -> Node:
    if not isinstance(arg, Select) or arg.test:
        raise MacroError(arg.at, "invalid argument to has() macro")
    return Select(at, arg.operand, arg.field, test=True)


def _accumulator(at: int) -> Ident:
    return Ident(at, ACCUMULATOR)


def _name(arg: Node, told: str) -> str:
    if not isinstance(arg, Ident):
        raise MacroError(arg.at, told)
    if arg.name in (ACCUMULATOR, "__result__"):
        raise MacroError(arg.at, "iteration variable overwrites accumulator variable")
    return arg.name


def _names(args: list[Node], count: int) -> tuple[str, str]:
    """The variables of a macro with one or two of them."""
    first = _name(args[0], "argument must be a simple name")
    if count == 1:
        return first, ""
    second = _name(args[1], "argument must be a simple name")
    if first == second:
        raise MacroError(args[1].at, f"duplicate variable name: {first}")
    return first, second


def _all(at: int, target: Node, args: list[Node]) -> Node:
    condition = Call(at, "@not_strictly_false", [_accumulator(at)])
    step = Call(at, "_&&_", [_accumulator(at), args[-1]])
    names = _names(args, len(args) - 1)
    return Comprehension(at, target, names, ACCUMULATOR, (Literal(at, True), condition, step, _accumulator(at)))


def _exists(at: int, target: Node, args: list[Node]) -> Node:
    condition = Call(at, "@not_strictly_false", [Call(at, "!_", [_accumulator(at)])])
    step = Call(at, "_||_", [_accumulator(at), args[-1]])
    names = _names(args, len(args) - 1)
    return Comprehension(at, target, names, ACCUMULATOR, (Literal(at, False), condition, step, _accumulator(at)))


def _exists_one(at: int, target: Node, args: list[Node]) -> Node:
    more = Call(at, "_+_", [_accumulator(at), Literal(at, 1)])
    step = Call(at, "_?_:_", [args[-1], more, _accumulator(at)])
    result = Call(at, "_==_", [_accumulator(at), Literal(at, 1)])
    names = _names(args, len(args) - 1)
    return Comprehension(at, target, names, ACCUMULATOR, (Literal(at, 0), Literal(at, True), step, result))


def _folded(at: int, target: Node, names: tuple[str, str], init: Node, step: Node, only: Node | None) -> Node:
    """A comprehension that adds to a list or map what passes the filter."""
    if only is not None:
        step = Call(at, "_?_:_", [only, step, _accumulator(at)])
    return Comprehension(at, target, names, ACCUMULATOR, (init, Literal(at, True), step, _accumulator(at)))


def _map(at: int, target: Node, args: list[Node]) -> Node:
    name = _name(args[0], "argument is not an identifier")
    step = Call(at, "_+_", [_accumulator(at), ListNode(at, [args[-1]])])
    return _folded(at, target, (name, ""), ListNode(at, []), step, args[1] if len(args) == 3 else None)


def _filter(at: int, target: Node, args: list[Node]) -> Node:
    name = _name(args[0], "argument is not an identifier")
    step = Call(at, "_+_", [_accumulator(at), ListNode(at, [args[0]])])
    return _folded(at, target, (name, ""), ListNode(at, []), step, args[1])


def _transform_list(at: int, target: Node, args: list[Node]) -> Node:
    step = Call(at, "_+_", [_accumulator(at), ListNode(at, [args[-1]])])
    return _folded(at, target, _names(args, 2), ListNode(at, []), step, args[2] if len(args) == 4 else None)


def _transform_map(at: int, target: Node, args: list[Node]) -> Node:
    names = _names(args, 2)
    step = Call(at, "cel.@mapInsert", [_accumulator(at), Ident(at, names[0]), args[-1]])
    return _folded(at, target, names, MapNode(at, []), step, args[2] if len(args) == 4 else None)


def _transform_map_entry(at: int, target: Node, args: list[Node]) -> Node:
    step = Call(at, "cel.@mapInsert", [_accumulator(at), args[-1]])
    return _folded(at, target, _names(args, 2), MapNode(at, []), step, args[2] if len(args) == 4 else None)


def _bound(at: int, name: str, value: Node, result: Node) -> Comprehension:
    """`result` with a name for `value`."""
    parts = (value, Literal(at, False), Ident(at, name), result)
    return Comprehension(at, ListNode(at, []), (_UNUSED, ""), name, parts)


def _opt_map(at: int, target: Node, args: list[Node]) -> Node:
    mapped = _opt_bound(at, target, args, "optMap")
    return _if_present(at, target, Call(at, "optional.of", [mapped]))


def _opt_flat_map(at: int, target: Node, args: list[Node]) -> Node:
    return _if_present(at, target, _opt_bound(at, target, args, "optFlatMap"))


def _opt_bound(at: int, target: Node, args: list[Node], macro: str) -> Node:
    if not isinstance(args[0], Ident):
        raise MacroError(args[0].at, f"{macro}() variable name must be a simple identifier")
    return _bound(at, args[0].name, Call(at, "value", [], deepcopy(target)), args[1])


def _if_present(at: int, target: Node, then: Node) -> Node:
    return Call(at, "_?_:_", [Call(at, "hasValue", [], target), then, Call(at, "optional.none", [])])


def _sort_by(at: int, target: Node, args: list[Node]) -> Node:
    if not isinstance(target, ListNode | Select | Ident | Comprehension | Call):
        told = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        raise MacroError(target.at, told)
    keys = _map(at, Ident(at, _SORTED), args)
    return _bound(at, _SORTED, target, Call(at, "@sortByAssociatedKeys", [keys], Ident(at, _SORTED)))


_MACROS: dict[tuple[str, int], Any] = {
    ("all", 2): _all,
    ("all", 3): _all,
    ("exists", 2): _exists,
    ("exists", 3): _exists,
    ("exists_one", 2): _exists_one,
    ("exists_one", 3): _exists_one,
    ("existsOne", 3): _exists_one,
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    ("transformList", 3): _transform_list,
    ("transformList", 4): _transform_list,
    ("transformMap", 3): _transform_map,
    ("transformMap", 4): _transform_map,
    ("transformMapEntry", 3): _transform_map_entry,
    ("transformMapEntry", 4): _transform_map_entry,
    ("optMap", 2): _opt_map,
    ("optFlatMap", 2): _opt_flat_map,
    ("sortBy", 2): _sort_by,
}
"""By name and number of arguments."""
