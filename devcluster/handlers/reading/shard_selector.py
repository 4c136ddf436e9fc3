"""Shard selectors of lists and watches: objects whose hashed uid or namespace is in a range.

    shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') || shardRange(...)

Feature gate ShardedListAndWatch. Source: apimachinery pkg/sharding, apiserver pkg/sharding of v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kubeloop.cel.parser import parse
from kubeloop.cel.syntax import (
    Call,
    Comprehension,
    ExpressionError,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    StructLiteral,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted

_PATHS = ("object.metadata.uid", "object.metadata.namespace")
_BITS = 64
_DIGITS = _BITS // 4
_END = f"0x1{'0' * _DIGITS}"
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
# numbers of cel-go's ast.ExprKind and names of Go types, as messages contain them
_KINDS = {Call: 1, Comprehension: 2, Ident: 3, ListNode: 4, Literal: 5, MapNode: 6, Select: 7, StructLiteral: 8}
_GO_TYPES = {int: "int64", float: "float64", bool: "bool", bytes: "[]uint8"}


class ShardSelectorError(ValueError):
    """An invalid selector."""


class ShardRange(NamedTuple):
    """A range of hashes of a field, without its end."""

    path: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"shardRange({self.path}, '{_hex(self.start)}', '{_hex(self.end)}')"


class ShardSelector(NamedTuple):
    """Ranges of one field."""

    ranges: tuple[ShardRange, ...]

    def matches(self, obj: JSON) -> bool:
        value = obj["metadata"].get(self.ranges[0].path.rpartition(".")[2], "")
        number = hash_of(value)
        return any(shard.start <= number < shard.end for shard in self.ranges)

    def __str__(self) -> str:
        return " || ".join(map(str, self.ranges))


def hash_of(value: str) -> int:
    """Return the 64-bit FNV-1a hash."""
    number = _FNV_OFFSET
    for byte in value.encode():
        number = (number ^ byte) * _FNV_PRIME & (1 << _BITS) - 1
    return number


def parse_shard_selector(text: str) -> ShardSelector:
    """Raises ShardSelectorError."""
    if not text.strip():
        raise ShardSelectorError("empty shard selector is not allowed; omit the parameter for unfiltered lists")
    try:
        node = parse(text.strip())
    except ExpressionError as error:
        raise ShardSelectorError(f"CEL parse error: {error.issues[0].message}") from error
    ranges = tuple(_ranges(node))
    for shard in ranges[1:]:
        if shard.path != ranges[0].path:
            fields = f"{quoted(ranges[0].path)} and {quoted(shard.path)}"
            raise ShardSelectorError(f"all shard ranges must use the same field, got {fields}")
    return ShardSelector(ranges)


def _ranges(node: Node) -> Iterator[ShardRange]:
    if not isinstance(node, Call):
        raise ShardSelectorError(
            f"unexpected expression kind {_KINDS[type(node)]}; expected shardRange() call or || operator"
        )
    if node.name == "_||_":
        for operand in node.args:
            yield from _ranges(operand)
    elif node.name == "shardRange":
        yield _range(node)
    else:
        raise ShardSelectorError(f"unsupported function {quoted(node.name)}; only shardRange() and || are allowed")


def _range(call: Call) -> ShardRange:
    if len(call.args) != 3:
        raise ShardSelectorError(f"shardRange() requires exactly 3 arguments, got {len(call.args)}")
    path = _path(call.args[0])
    if path not in _PATHS:
        raise ShardSelectorError(f"unsupported field path {quoted(path)}; supported: {', '.join(_PATHS)}")
    start, end = _bound(call.args[1], "hexStart"), _bound(call.args[2], "hexEnd")
    if start >= end:
        raise ShardSelectorError(f"shard range start {_hex(start)} must be less than end {_hex(end)}")
    return ShardRange(path, start, end)


def _path(node: Node) -> str:
    match node:
        case Ident():
            return node.name
        case Select():
            return f"{_path(node.operand)}.{node.field}"
    kind = _KINDS[type(node)]
    raise ShardSelectorError(
        f"shardRange() first argument: expected field path (e.g. object.metadata.uid), got expression kind {kind}"
    )


def _bound(node: Node, name: str) -> int:
    """Return a bound, which has 16 digits, or is 2^64."""
    if not isinstance(node, Literal):
        kind = _KINDS[type(node)]
        raise ShardSelectorError(f"{name} must be a string literal (e.g. '0xff'), got expression kind {kind}")
    text = node.value
    if not isinstance(text, str):
        raise ShardSelectorError(f"{name} must be a string literal, got {_GO_TYPES.get(type(text), 'uint64')}")
    if not text.startswith("0x"):
        raise ShardSelectorError(f"{name} must have '0x' prefix, got {quoted(text)}")
    digits = text[2:]
    if not digits:
        raise ShardSelectorError(f"{name}: hex value is required after '0x'")
    if len(digits.encode()) > _DIGITS + 1:
        count = len(digits.encode())
        raise ShardSelectorError(f"{name}: hex value too long ({count} chars, max {_DIGITS + 1}): {quoted(digits)}")
    if wrong := re.search("[^0-9a-f]", digits):
        raise ShardSelectorError(f"{name}: invalid hex character {quoted(wrong[0])} in {quoted(text)}")
    if len(digits) > _DIGITS and text != _END:
        raise ShardSelectorError(f"{name}: 17-digit hex value must be '{_END}' (2^64), got {quoted(text)}")
    if len(digits) < _DIGITS:
        suggestion = quoted(f"0x{digits:0>{_DIGITS}}")
        detail = f"got {quoted(text)} (did you mean {suggestion}?)"
        raise ShardSelectorError(f"{name} must be a 0x-prefixed 16-digit hex value, {detail}")
    return int(digits, 16)


def _hex(number: int) -> str:
    return f"0x{number:0{_DIGITS}x}"
