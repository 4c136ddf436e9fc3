"""Interpreter of the jq subset that KWOK stages use: paths, iteration, select, comparison, some functions.

    .metadata.deletionTimestamp         .metadata.labels["app"]         .status.conditions.[].type
    .status.conditions[] | select(.type == "Ready") | .status           .spec.replicas // 1

Values are JSON values. An expression that cannot be evaluated (a field of a number, iteration over null) has no result,
as in KWOK. Source: jq 1.7's manual, gojq.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias


class JqError(Exception):
    """An invalid or unsupported expression."""


class _Unfit(Exception):
    """The expression cannot be evaluated for this value."""


Filter: TypeAlias = Callable[[Any], Iterator[Any]]

_TOKEN = re.compile(
    r"""\s+ | (?P<string>"(?:[^"\\]|\\.)*") | (?P<number>\d+(?:\.\d+)?) | (?P<field>\.[A-Za-z_]\w*)
      | (?P<word>[A-Za-z_]\w*) | (?P<sign>//|==|!=|<=|>=|[.\[\]()|,<>?:-])""",
    re.VERBOSE,
)


class Query:
    """A parsed expression. Raises JqError if it is invalid or unsupported."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._filter = _Parser(text).parse()

    def results(self, value: Any) -> list[Any]:
        """Return the results for `value` without nulls; none if the evaluation fails."""
        try:
            return [item for item in self._filter(value) if item is not None]
        except _Unfit:
            return []


class _Parser:
    """Parser. Precedence from low to high:  |   ,   //   or   and   == != < <= > >=   postfix."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise JqError(f"unexpected {text[at]!r}")
            if match.lastgroup is not None:
                self._tokens.append((match.lastgroup, match[0]))
            at = match.end()
        self._at = 0

    def parse(self) -> Filter:
        if not self._tokens:
            raise JqError("the expression is empty")
        parsed = self._pipe()
        if self._at < len(self._tokens):
            raise JqError(f"unexpected {self._tokens[self._at][1]!r}")
        return parsed

    def _next_is(self, *texts: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at][1] in texts

    def _take(self, *texts: str) -> str | None:
        if self._next_is(*texts):
            self._at += 1
            return self._tokens[self._at - 1][1]
        return None

    def _expect(self, text: str) -> None:
        if self._take(text) is None:
            token = self._tokens[self._at][1] if self._at < len(self._tokens) else "the end"
            raise JqError(f"{text!r} expected before {token!r}")

    def _pipe(self) -> Filter:
        left = self._comma()
        while self._take("|"):
            left = _piped(left, self._comma())
        return left

    def _comma(self) -> Filter:
        left = self._alternative()
        while self._take(","):
            left = _both(left, self._alternative())
        return left

    def _alternative(self) -> Filter:
        left = self._or()
        return _or_else(left, self._alternative()) if self._take("//") else left

    def _or(self) -> Filter:
        left = self._and()
        while self._take("or"):
            left = _logic(left, self._and(), decides=True)
        return left

    def _and(self) -> Filter:
        left = self._comparison()
        while self._take("and"):
            left = _logic(left, self._comparison(), decides=False)
        return left

    def _comparison(self) -> Filter:
        left = self._postfix()
        sign = self._take("==", "!=", "<", "<=", ">", ">=")
        return _compared(left, sign, self._postfix()) if sign else left

    def _postfix(self) -> Filter:
        term = self._term()
        while self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            if kind == "field":
                self._at += 1
                term = _piped(term, _field(text[1:]))
            elif text == ".":  # .["name"], .[] and ."name"
                self._at += 1
                if self._at < len(self._tokens) and self._tokens[self._at][0] == "string":
                    term = _piped(term, _field(self._string()))
                elif not self._next_is("["):
                    raise JqError("a '.' that nothing follows")
            elif text == "[":
                term = self._bracket(term)
            elif text == "?":
                self._at += 1
                term = _tried(term)
            else:
                break
        return term

    def _bracket(self, of: Filter) -> Filter:
        self._expect("[")
        if self._take("]"):
            return _piped(of, _each)
        if self._next_is(":"):
            raise JqError("slices are not supported")
        key = self._pipe()
        if self._next_is(":"):
            raise JqError("slices are not supported")
        self._expect("]")
        return _indexed(of, key)

    def _string(self) -> str:
        text = self._tokens[self._at][1]
        self._at += 1
        if "\\(" in text:
            raise JqError("string interpolation is not supported")
        try:
            value: str = json.loads(text)
        except ValueError:
            raise JqError(f"bad escape in {text}") from None
        return value

    def _term(self) -> Filter:
        if self._at >= len(self._tokens):
            raise JqError("the expression ends too soon")
        kind, text = self._tokens[self._at]
        if kind == "string":
            return _constant(self._string())
        self._at += 1
        if kind == "field":
            return _field(text[1:])
        if kind == "number":
            return _constant(json.loads(text))
        if kind == "word":
            return self._function(text)
        match text:
            case ".":
                if self._at < len(self._tokens) and self._tokens[self._at][0] == "string":
                    return _field(self._string())
                return _identity
            case "(":
                inner = self._pipe()
                self._expect(")")
                return inner
            case "-":
                negated = self._postfix()
                return lambda value: (-_numeric(item) for item in negated(value))
            case "[":
                if self._take("]"):
                    return _constant([])
                collected = self._pipe()
                self._expect("]")
                return lambda value: iter([list(collected(value))])
        raise JqError(f"unexpected {text!r}")

    def _function(self, name: str) -> Filter:
        if name in _CONSTANTS:
            return _constant(_CONSTANTS[name])
        arguments: list[Filter] = []
        if self._take("("):
            arguments.append(self._pipe())
            self._expect(")")
        plain, with_argument = _PLAIN.get(name), _WITH_ARGUMENT.get(name)
        if not arguments and plain is not None:
            return plain
        if arguments and with_argument is not None:
            return with_argument(arguments[0])
        if plain is None and with_argument is None:
            raise JqError(f"{name} is not supported")
        raise JqError(f"{name} {'needs an argument' if with_argument else 'takes no argument'}")


# --- filters --------------------------------------------------------------------------------------


def _identity(value: Any) -> Iterator[Any]:
    yield value


def _constant(constant: Any) -> Filter:
    return lambda _value: iter([constant])


def _field(name: str) -> Filter:
    def field(value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            yield value.get(name)
        elif value is None:
            yield None
        else:
            raise _Unfit

    return field


def _each(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from (value[key] for key in sorted(value))
    else:
        raise _Unfit


def _indexed(of: Filter, key: Filter) -> Filter:
    def index(value: Any) -> Iterator[Any]:
        for item in of(value):
            for name in key(value):
                if isinstance(name, str):
                    yield from _field(name)(item)
                elif isinstance(name, int) and not isinstance(name, bool) and (item is None or isinstance(item, list)):
                    items = item or []
                    yield items[name] if -len(items) <= name < len(items) else None
                else:
                    raise _Unfit

    return index


def _piped(left: Filter, right: Filter) -> Filter:
    def piped(value: Any) -> Iterator[Any]:
        for item in left(value):
            yield from right(item)

    return piped


def _both(left: Filter, right: Filter) -> Filter:
    def both(value: Any) -> Iterator[Any]:
        yield from left(value)
        yield from right(value)

    return both


def _tried(of: Filter) -> Filter:
    def tried(value: Any) -> Iterator[Any]:
        try:
            yield from of(value)
        except _Unfit:
            return

    return tried


def _true(value: Any) -> bool:
    """Return jq's truth of a value: only null and false are false."""
    return value is not None and value is not False


def _or_else(left: Filter, right: Filter) -> Filter:
    def alternative(value: Any) -> Iterator[Any]:
        results = [item for item in _tried(left)(value) if _true(item)]
        yield from results or right(value)

    return alternative


def _logic(left: Filter, right: Filter, *, decides: bool) -> Filter:
    def logic(value: Any) -> Iterator[Any]:
        for one in left(value):
            if _true(one) == decides:
                yield decides
            else:
                yield from (_true(other) for other in right(value))

    return logic


_ORDER = {type(None): 0, bool: 1, int: 2, float: 2, str: 3, list: 4, dict: 5}


def _rank(value: Any) -> tuple[int, Any]:
    """Return the sort key of jq's total order: null, false, true, numbers, strings, arrays, objects."""
    order = _ORDER[type(value)]
    match value:
        case None:
            return order, 0
        case list():
            return order, [_rank(item) for item in value]
        case dict():
            return order, (sorted(value), [_rank(value[key]) for key in sorted(value)])
    return order, value


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda one, other: bool(one == other),
    "!=": lambda one, other: bool(one != other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}


def _compared(left: Filter, sign: str, right: Filter) -> Filter:
    compare = _COMPARE[sign]

    def compared(value: Any) -> Iterator[Any]:
        for other in right(value):
            for one in left(value):
                yield compare(_rank(one), _rank(other))

    return compared


# --- functions ------------------------------------------------------------------------------------


def _numeric(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Unfit
    return value


def _textual(value: Any) -> str:
    if not isinstance(value, str):
        raise _Unfit
    return value


def _map_value(apply: Callable[[Any], Any]) -> Filter:
    return lambda value: iter([apply(value)])


def _length(value: Any) -> Any:
    match value:
        case None:
            return 0
        case bool():
            raise _Unfit
        case int() | float():
            return abs(value)
    return len(value)


def _to_number(value: Any) -> int | float:
    if isinstance(value, str):
        try:
            number = json.loads(value)
        except ValueError:
            raise _Unfit from None
        return _numeric(number)
    return _numeric(value)


def _keys(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return sorted(value)
    if isinstance(value, list):
        return list(range(len(value)))
    raise _Unfit


def _type_of(value: Any) -> str:
    return ("null", "boolean", "number", "string", "array", "object")[_ORDER[type(value)]]


def _listed(value: Any) -> list[Any]:
    return list(_each(value))


def _at_end(value: Any, index: int) -> Any:
    items = _listed(value)
    return items[index] if items else None


def _select(condition: Filter) -> Filter:
    return lambda value: (value for item in condition(value) if _true(item))


def _has(key: Filter) -> Filter:
    def has(value: Any) -> Iterator[Any]:
        for name in key(value):
            if isinstance(value, dict) and isinstance(name, str):
                yield name in value
            elif isinstance(value, list) and isinstance(name, int):
                yield 0 <= name < len(value)
            else:
                raise _Unfit

    return has


def _of_texts(test: Callable[[str, str], bool]) -> Callable[[Filter], Filter]:
    return lambda argument: lambda value: (test(_textual(value), _textual(item)) for item in argument(value))


def _quantified(of: Callable[[Iterator[bool]], bool]) -> Callable[[Filter], Filter]:
    return lambda condition: (
        lambda value: iter([of(_true(result) for item in _each(value) for result in condition(item))])
    )


def _mapped(of: Filter) -> Filter:
    return lambda value: iter([[result for item in _each(value) for result in of(item)]])


def _contains(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return all(key in one and _contains(one[key], value) for key, value in other.items())
    if isinstance(one, list) and isinstance(other, list):
        return all(any(_contains(item, value) for item in one) for value in other)
    if isinstance(one, str) and isinstance(other, str):
        return other in one
    if _type_of(one) != _type_of(other):
        raise _Unfit
    return bool(one == other)


def _test(text: str, pattern: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        raise _Unfit from None


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_CONSTANTS = {"null": None, "true": True, "false": False}
_PLAIN: dict[str, Filter] = {
    "not": _map_value(lambda value: not _true(value)),
    "length": _map_value(_length),
    "keys": _map_value(_keys),
    "type": _map_value(_type_of),
    "tostring": _map_value(_to_text),
    "tonumber": _map_value(_to_number),
    "first": _map_value(lambda value: _at_end(value, 0)),
    "last": _map_value(lambda value: _at_end(value, -1)),
    "any": _map_value(lambda value: any(map(_true, _listed(value)))),
    "all": _map_value(lambda value: all(map(_true, _listed(value)))),
    "ascii_downcase": _map_value(lambda value: _textual(value).lower()),
    "ascii_upcase": _map_value(lambda value: _textual(value).upper()),
    "empty": lambda _value: iter(()),
}
_WITH_ARGUMENT: dict[str, Callable[[Filter], Filter]] = {
    "select": _select,
    "has": _has,
    "map": _mapped,
    "any": _quantified(any),
    "all": _quantified(all),
    "startswith": _of_texts(str.startswith),
    "endswith": _of_texts(str.endswith),
    "test": _of_texts(_test),
    "contains": lambda argument: lambda value: (_contains(value, item) for item in argument(value)),
    "first": lambda of: lambda value: iter([item for item, _ in zip(of(value), range(1), strict=False)]),
}
