"""What is looked at once types are known: literals that would fail whenever the expression runs.

Source: cel-go cel/validator.go, ext/formatting.go.
"""

from __future__ import annotations

from kubeloop.devcluster.languages.cel import string_functions
from kubeloop.devcluster.languages.cel.standard_functions import FUNCTIONS
from kubeloop.devcluster.languages.cel.syntax import Call, Issue, ListNode, Literal, MapNode, Node, children, walk
from kubeloop.devcluster.languages.cel.types import Type, unwrap_optional
from kubeloop.devcluster.languages.cel.values import CelError


def check_literals(node: Node) -> list[Issue]:
    """Durations, timestamps and patterns that are none, lists and maps of mixed types, formats that do not fit."""
    issues: list[Issue] = []
    for each in walk(node):
        if isinstance(each, Call) and each.args:
            issues += _argument(each)
            if each.name == "format" and each.target is not None:
                issues += _format(each)
    issues += _mixed(node)
    return issues


def _argument(call: Call) -> list[Issue]:
    literal = call.args[0]
    if not isinstance(literal, Literal):
        return []
    try:
        if call.name in ("duration", "timestamp"):
            FUNCTIONS[call.name](literal.value)
        elif call.name == "matches" and isinstance(literal.value, str):
            string_functions.compiled_pattern(literal.value)
    except CelError:
        return [Issue(literal.at, f"invalid {call.name} argument")]
    return []


def _mixed(node: Node, *, exempt: bool = False) -> list[Issue]:
    """Arguments of format() may be mixed."""
    issues: list[Issue] = []
    if isinstance(node, ListNode) and not exempt:
        types = [
            (each, unwrap_optional(each.type)[0] if index in node.optional else each.type)
            for index, each in enumerate(node.elements)
        ]
        issues += _first_other(types)
    elif isinstance(node, MapNode) and not exempt:
        issues += _first_other([(entry.key, entry.key.type) for entry in node.entries])
        values = [
            (entry.value, unwrap_optional(entry.value.type)[0] if entry.optional else entry.value.type)
            for entry in node.entries
        ]
        issues += _first_other(values)
    inside = exempt or (isinstance(node, Call) and node.name == "format")
    for each in children(node):
        issues += _mixed(each, exempt=inside)
    return issues


def _first_other(types: list[tuple[Node, Type]]) -> list[Issue]:
    for node, found in types[1:]:
        if found != types[0][1]:
            return [Issue(node.at, f"expected type '{types[0][1]}' but found '{found}'")]
    return []


def _format(call: Call) -> list[Issue]:
    """A literal text with the literal list of what is put into it."""
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
            allowed, told = string_functions.ALLOWED[clause.letter.lower()]
            if not argument.type.is_dyn and argument.type.kind not in allowed:
                name = argument.type.name
                return [Issue(argument.at, f"error during formatting: {told}, was given {name}")]
    except CelError as error:
        return [Issue(call.at, str(error))]
    if len(arguments.elements) > used:
        told = f"too many arguments supplied to string.format (expected {used}, got {len(arguments.elements)})"
        return [Issue(call.at, told)]
    return []
