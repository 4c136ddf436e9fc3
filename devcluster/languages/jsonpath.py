"""JSON paths of printer columns, selectable fields and the scale subresource: .status.conditions[?(...)].

Fields, indices, slices, wildcards, unions, filters and recursive descent. A path to a missing value has no results.
Source: client-go util/jsonpath.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from kubeloop.kube.values.integers import parse_integer

Step = Callable[[Any], Iterator[Any]]


class PathError(ValueError):
    """An invalid path; the message states the problem."""


_FIELD = re.compile(r"(?:\\.|[^.\[\]\\{}\s])+")
_FILTER = re.compile(r"\s*(@[^\s=!<>]*)\s*(?:(==|!=|<=|>=|<|>)\s*(.+?))?\s*", re.S)


@lru_cache(maxsize=1024)
def parse(path: str) -> tuple[Step, ...]:
    """Return the steps of a path such as .spec.replicas or .items[?(@.name=="a")].value. Raises PathError."""
    steps: list[Step] = []
    at = 1 if path.startswith(("$", "@")) else 0
    while at < len(path):
        if path.startswith("..", at):
            steps.append(_descend)
            at += 1 if path.startswith("..[", at) else 2
            if at < len(path) and path[at] not in ".[*":
                at = _field(path, at, steps)
        elif path[at] == ".":
            at = _field(path, at + 1, steps)
        elif path[at] == "[":
            end = _closing_bracket(path, at)
            steps.append(_bracket(path[at + 1 : end].strip()))
            at = end + 1
        else:
            raise PathError(f"unrecognized character in action: {path[at]!r}")
    return tuple(steps)


def _field(path: str, at: int, steps: list[Step]) -> int:
    if at >= len(path) or path[at] == "[":
        return at
    if path[at] == "*":
        steps.append(_children)
        return at + 1
    match = _FIELD.match(path, at)
    if match is None:
        raise PathError(f"unrecognized character in action: {path[at]!r}")
    steps.append(_field_step(re.sub(r"\\(.)", r"\1", match[0])))
    return match.end()


def _closing_bracket(path: str, start: int) -> int:
    """Return the index of the bracket that closes the one at `start`."""
    depth, quote = 0, ""
    for at in range(start, len(path)):
        char = path[at]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
            if depth == 0:
                return at
    raise PathError("unterminated array")


def _field_step(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descend(value: Any) -> Iterator[Any]:
    yield value
    for child in _children(value):
        yield from _descend(child)


def _bracket(text: str) -> Step:
    if text.startswith("?(") and text.endswith(")"):
        return _filter(text[2:-1])
    if text == "*":
        return _children
    if re.fullmatch(r"-?\d*(:-?\d*){1,2}", text):
        start, stop, step = ([parse_integer(bound) if bound else None for bound in text.split(":")] + [None])[:3]
        return lambda value: iter(value[start:stop:step]) if isinstance(value, list) else iter(())
    parts = [part.strip() for part in text.split(",")]
    if all(re.fullmatch(r"-?\d+", part) for part in parts):
        return _union([_index_step(parse_integer(part)) for part in parts])
    names = [re.fullmatch(r"'([^']*)'|\"([^\"]*)\"", part) for part in parts]
    if not all(names):
        raise PathError(f"invalid array index {text}")
    return _union([_field_step(name[1] if name[1] is not None else name[2]) for name in names if name])


def _index_step(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _union(steps: list[Step]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        for member in steps:
            yield from member(value)

    return step


def _filter(text: str) -> Step:
    match = _FILTER.fullmatch(text)
    if match is None:
        raise PathError(f"invalid filter {text}")
    left, sign, right = match.groups()
    left_steps = parse(left)
    right_operand = _operand(right) if sign else None

    def matches(item: Any) -> bool:
        left_values = _walk(left_steps, item)
        if right_operand is None:
            return bool(left_values)
        right_values = right_operand(item)
        return bool(left_values) and bool(right_values) and _compare(left_values[0], sign, right_values[0])

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from (item for item in value if matches(item))

    return step


def _operand(text: str) -> Callable[[Any], list[Any]]:
    if text.startswith("@"):
        steps = parse(text)
        return lambda item: _walk(steps, item)
    if text[0] in "'\"" and text[-1] == text[0] and len(text) > 1:
        literal: Any = text[1:-1]
    else:
        try:
            literal = msgspec.json.decode(text)
        except msgspec.DecodeError:
            raise PathError(f"invalid operand {text}") from None
    return lambda _item: [literal]


def _compare(left: Any, sign: str, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        left, right = str(left).lower(), str(right).lower()
    try:
        return bool(_OPERATORS[sign](left, right))
    except TypeError:
        return False


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


def _walk(steps: tuple[Step, ...], value: Any) -> list[Any]:
    values = [value]
    for step in steps:
        values = [child for parent in values for child in step(parent)]
    return values


def find(path: str, value: Any) -> list[Any]:
    """Return all values at the path. Raises PathError."""
    return _walk(parse(path), value)


def to_string(value: Any) -> str:
    """Return a value as client-go's JSON path printer shows it."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>"
    return msgspec.json.encode(value, order="sorted").decode()


def field_names(path: str) -> list[str]:
    """Return the field names of a simple path: ["spec", "replicas"] for .spec.replicas."""
    return path.removeprefix(".").split(".")
