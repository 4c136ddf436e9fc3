"""Validators that run after type checking: they report literals that would fail in every evaluation.

Source: cel-go cel/validator.go, ext/formatting.go.
"""

from __future__ import annotations

from kubeloop.cel.functions import string_functions
from kubeloop.cel.functions.standard_functions import FUNCTIONS
from kubeloop.cel.syntax import Call, Issue, ListNode, Literal, MapNode, Node, children, walk
from kubeloop.cel.types import Type, unwrap_optional
from kubeloop.cel.values import CelError


def check_literals(node: Node) -> list[Issue]:
    """Return issues for invalid durations, timestamps and patterns, lists and maps of mixed types, and bad formats."""
    issues: list[Issue] = []
    for call in walk(node):
        if isinstance(call, Call) and call.args:
            issues += _invalid_argument(call)
            if call.name == "format" and call.target is not None:
                issues += _invalid_format(call)
    issues += _mixed_types(node)
    return issues


def _invalid_argument(call: Call) -> list[Issue]:
    literal = call.args[0]
    if not isinstance(literal, Literal):
        return []
    try:
        if call.name in ("duration", "timestamp"):
            FUNCTIONS[call.name](literal.value)
        elif call.name == "matches" and isinstance(literal.value, str):
            string_functions.compiled_pattern(literal.value)
    except CelError:
        return [Issue(literal.offset, f"invalid {call.name} argument")]
    return []


def _mixed_types(node: Node, *, exempt: bool = False) -> list[Issue]:
    """Return issues for list and map literals of mixed types, which only the arguments of format() may be."""
    issues: list[Issue] = []
    if isinstance(node, ListNode) and not exempt:
        optional = node.optional
        issues += _first_mismatch([_typed(element, at in optional) for at, element in enumerate(node.elements)])
    elif isinstance(node, MapNode) and not exempt:
        issues += _first_mismatch([_typed(entry.key, False) for entry in node.entries])
        issues += _first_mismatch([_typed(entry.value, entry.optional) for entry in node.entries])
    inside = exempt or (isinstance(node, Call) and node.name == "format")
    for child in children(node):
        issues += _mixed_types(child, exempt=inside)
    return issues


def _typed(node: Node, optional: bool) -> tuple[Node, Type]:
    """Return a node with the type of its value, which an optional entry wraps."""
    return node, unwrap_optional(node.type)[0] if optional else node.type


def _first_mismatch(types: list[tuple[Node, Type]]) -> list[Issue]:
    for node, type_ in types[1:]:
        if type_ != types[0][1]:
            return [Issue(node.offset, f"expected type '{types[0][1]}' but found '{type_}'")]
    return []


def _invalid_format(call: Call) -> list[Issue]:
    """Return issues for a literal format string whose literal argument list does not fit."""
    text, arguments = call.target, call.args[0]
    if not isinstance(text, Literal) or type(text.value) is not str or not isinstance(arguments, ListNode):
        return []
    used = 0
    try:
        for clause in string_functions.clauses(text.value):
            if isinstance(clause, str):
                continue
            if used >= len(arguments.elements):
                raise CelError(f"index {used} out of range")
            argument = arguments.elements[used]
            used += 1
            allowed, message = string_functions.CLAUSE_TYPES[clause.letter.lower()]
            if not argument.type.is_dyn and argument.type.kind not in allowed:
                name = argument.type.name
                return [Issue(argument.offset, f"error during formatting: {message}, was given {name}")]
    except CelError as error:
        return [Issue(call.offset, str(error))]
    if len(arguments.elements) > used:
        message = f"too many arguments supplied to string.format (expected {used}, got {len(arguments.elements)})"
        return [Issue(call.offset, message)]
    return []
