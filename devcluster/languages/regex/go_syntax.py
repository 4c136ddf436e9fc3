"""Parser of Go's regular expressions, and their translation to Python's.

    pattern --parse()--> nodes --to_python()--> Python regular expression with the same matches
                               \\--------------> automata.Automaton, if re might be slow

Character sets are spelled out (`\\d`, `[[:alpha:]]`, `\\p{Greek}`, case-insensitive letters), so Python's own classes
and flags are not used. Errors have Go's texts. Source: Go's regexp/syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from kubeloop.devcluster.languages.regex.unicode_classes import (
    ANY,
    Ranges,
    character_class,
    joined,
    others,
    with_other_cases,
)

_MAX_REPEATS = 1000
_MAX_DEPTH = 200  # Go allows 1000; Python's pattern compiler is recursive
_MAX_SIZE = (128 << 20) // 40  # Go's limit on instructions


class PatternError(ValueError):
    """An invalid regular expression, with the error of Go's regexp.Compile."""

    def __init__(self, problem: str, part: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{part}`")


# --- nodes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    ranges: Ranges
    depth = 1
    size = 1


@dataclass(frozen=True, slots=True)
class At:
    """A zero-width assertion: "text begins", "text ends", "line begins", "line ends", "word edge", "no word edge"."""

    where: str
    depth = 1
    size = 1


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]
    depth: int
    size: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives; the first that matches wins."""

    choices: tuple[Node, ...]
    depth: int
    size: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repetition. most: None for unbounded. lazy: prefers fewer repetitions."""

    of: Node
    least: int
    most: int | None
    lazy: bool
    depth: int
    size: int


Node: TypeAlias = Chars | At | Sequence | Choice | Repeat


def _sequence(parts: list[Node]) -> Node:
    if len(parts) == 1:
        return parts[0]
    depth = 1 + max((part.depth for part in parts), default=0)
    return Sequence(tuple(parts), depth, max(1, sum(part.size for part in parts)))


def _choice(choices: list[Node]) -> Node:
    merged: list[Node] = []
    for choice in choices:  # adjacent single characters are merged: their order has no effect
        if isinstance(choice, Chars) and merged and isinstance(merged[-1], Chars):
            merged[-1] = Chars(joined([*merged[-1].ranges, *choice.ranges]))
        else:
            merged.append(choice)
    if len(merged) == 1:
        return merged[0]
    return Choice(
        tuple(merged),
        1 + max(choice.depth for choice in merged),
        sum(choice.size for choice in merged) + len(merged) - 1,
    )


def _repeated(of: Node, least: int, most: int | None, *, lazy: bool) -> Repeat:
    endless = 2 + of.size if least == 0 else 1 + least * of.size
    size = endless if most is None else most * of.size + most - least
    return Repeat(of, least, most, lazy, 1 + of.depth, max(1, size))


def _copies_fit(node: Node, limit: int) -> bool:
    """Return True if nested repetitions make at most `limit` copies."""
    match node:
        case Sequence(parts) | Choice(parts):
            return all(_copies_fit(part, limit) for part in parts)
        case Repeat(of, least, most):
            copies = least if most is None else most
            if most == 0:
                return True
            if (least, most) not in _SIGNS.values() and copies:
                if copies > limit:
                    return False
                limit //= copies
            return _copies_fit(of, limit)
    return True


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Flags:
    """The flags (?imsU)."""

    any_case: bool = False
    lines: bool = False
    dot_takes_newline: bool = False
    lazy: bool = False


_FLAGS = {"i": "any_case", "m": "lines", "s": "dot_takes_newline", "U": "lazy"}
_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_COUNT = re.compile(r"\{(0|[1-9][0-9]*)(,(0|[1-9][0-9]*)?)?\}")
_PLACES = {"A": "text begins", "z": "text ends", "b": "word edge", "B": "no word edge"}
_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _set(text: str) -> Ranges:
    """Return "azAZ__" as ranges."""
    return joined((ord(low), ord(high)) for low, high in zip(text[::2], text[1::2], strict=True))


_PERL = {"d": _set("09"), "s": _set("\t\n\f\r  "), "w": _set("09AZ__az")}
_POSIX = {
    "alnum": _set("09AZaz"), "alpha": _set("AZaz"), "ascii": _set("\x00\x7f"), "blank": _set("\t\t  "),
    "cntrl": _set("\x00\x1f\x7f\x7f"), "digit": _set("09"), "graph": _set("!~"), "lower": _set("az"),
    "print": _set(" ~"), "punct": _set("!/:@[`{~"), "space": _set("\t\r  "), "upper": _set("AZ"),
    "word": _set("09AZaz__"), "xdigit": _set("09AFaf"),
}  # fmt: skip
_NOT_NEWLINE = others(_set("\n\n"))


def parse(pattern: str) -> Node:
    """Parse a pattern. Raises PatternError."""
    return _Reader(pattern).parse()


class _Group:
    """An open parenthesis: its nodes so far, and the flags to restore after it."""

    __slots__ = ("choices", "flags", "parts")

    def __init__(self, flags: _Flags) -> None:
        self.flags = flags
        self.choices: list[Node] = []
        self.parts: list[Node] = []

    def node(self) -> Node:
        return _choice([*self.choices, _sequence(self.parts)])


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._flags = _Flags()
        self._groups = [_Group(self._flags)]

    def parse(self) -> Node:
        text = self._text
        repeated_at = -1  # start of the directly preceding repetition
        while self._at < len(text):
            char, began = text[self._at], self._at
            is_repetition = False
            match char:
                case "(":
                    self._open()
                case "|":
                    group = self._groups[-1]
                    group.choices.append(_sequence(group.parts))
                    group.parts = []
                    self._at += 1
                case ")":
                    self._close()
                case "*" | "+" | "?":
                    self._at += 1
                    self._repeat(began, repeated_at, *_SIGNS[char])
                    is_repetition = True
                case "{" if count := _COUNT.match(text, self._at):
                    self._at = count.end()
                    self._count(count, repeated_at)
                    is_repetition = True
                case _:
                    self._atom(char)
            repeated_at = began if is_repetition else -1
        if len(self._groups) > 1:
            raise PatternError("missing closing )", text)
        return self._bounded(self._groups[0].node())

    def _bounded(self, node: Node) -> Node:
        if node.size > _MAX_SIZE:
            raise PatternError("expression too large", self._text)
        if node.depth > _MAX_DEPTH:
            raise PatternError("expression nests too deeply", self._text)
        return node

    def _push(self, node: Node) -> None:
        self._groups[-1].parts.append(node)

    def _push_chars(self, ranges: Ranges) -> None:
        self._push(Chars(with_other_cases(ranges) if self._flags.any_case else ranges))

    def _literal(self, char: str) -> None:
        self._push_chars(((ord(char), ord(char)),))

    # --- groups and repetitions ---------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open a group, or set the flags of a parenthesis that holds only flags."""
        text, began = self._text, self._at
        self._at += 1
        if not text.startswith("?", self._at):
            self._groups.append(_Group(self._flags))
            return
        if text.startswith("(?P<", began) and began + 4 < len(text):
            self._name(began, began + 4)
        elif text.startswith("(?<", began) and began + 3 < len(text):
            self._name(began, began + 3)
        else:
            self._at += 1
            self._read_flags(began)

    def _name(self, began: int, start: int) -> None:
        end = self._text.find(">", began)
        if end < 0:
            raise PatternError("invalid named capture", self._text[began:])
        if not re.fullmatch(r"[A-Za-z0-9_]+", self._text[start:end]):
            raise PatternError("invalid named capture", self._text[began : end + 1])
        self._groups.append(_Group(self._flags))
        self._at = end + 1

    def _read_flags(self, began: int) -> None:
        changes: dict[str, bool] = {}
        negated = any_flag = False
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char in _FLAGS:
                changes[_FLAGS[char]] = not negated
                any_flag = True
            elif char == "-" and not negated:
                negated, any_flag = True, False
            elif char in ":)" and (any_flag or not negated):
                if char == ":":
                    self._groups.append(_Group(self._flags))
                self._flags = replace(self._flags, **changes)
                return
            else:
                break
        raise PatternError("invalid or unsupported Perl syntax", self._text[began : self._at])

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise PatternError("unexpected )", self._text)
        group = self._groups.pop()
        self._flags = group.flags
        self._push(self._bounded(group.node()))
        self._at += 1

    def _count(self, count: re.Match[str], repeated_at: int) -> None:
        least, most = int(count[1][:9]), int(count[3][:9]) if count[3] else None
        if not count[2]:
            most = least
        if least > _MAX_REPEATS or (most is not None and (most > _MAX_REPEATS or least > most)):
            raise PatternError("invalid repeat count", count[0])
        self._repeat(count.start(), repeated_at, least, most)
        if max(least, most or 0) >= 2 and not _copies_fit(self._groups[-1].parts[-1], _MAX_REPEATS):
            raise PatternError("invalid repeat count", self._text[count.start() : self._at])

    def _repeat(self, began: int, repeated_at: int, least: int, most: int | None) -> None:
        lazy = self._flags.lazy
        if self._text.startswith("?", self._at):
            self._at += 1
            lazy = not lazy
        if repeated_at >= 0:
            raise PatternError("invalid nested repetition operator", self._text[repeated_at : self._at])
        parts = self._groups[-1].parts
        if not parts:
            raise PatternError("missing argument to repetition operator", self._text[began : self._at])
        parts[-1] = self._bounded(_repeated(parts[-1], least, most, lazy=lazy))

    # --- characters ---------------------------------------------------------------------------------------------------

    def _atom(self, char: str) -> None:
        match char:
            case "^":
                self._push(At("line begins" if self._flags.lines else "text begins"))
            case "$":
                self._push(At("line ends" if self._flags.lines else "text ends"))
            case ".":
                self._push(Chars(ANY if self._flags.dot_takes_newline else _NOT_NEWLINE))
            case "[":
                self._push(Chars(self._class()))
                return
            case "\\":
                self._escaped()
                return
            case _:
                self._literal(char)
        self._at += 1

    def _escaped(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following in _PLACES:
            self._push(At(_PLACES[following]))
            self._at += 2
        elif following == "Q":
            literal, _, rest = self._text[self._at + 2 :].partition("\\E")
            for char in literal:
                self._literal(char)
            self._at = len(self._text) - len(rest)
        elif (ranges := self._escaped_class()) is not None:
            self._push(Chars(ranges))
        else:
            self._literal(self._escape())

    def _escaped_class(self) -> Ranges | None:
        r"""Take \d, \W, \pL or \p{^Greek}; for other escapes take nothing and return None."""
        sign = self._text[self._at + 1 : self._at + 2]
        if sign and sign in "pP":
            return self._unicode_class(negated=sign == "P")
        ranges = _PERL.get(sign.lower()) if sign else None
        if ranges is None:
            return None
        self._at += 2
        return self._of_group(ranges, negated=sign.isupper())

    def _of_group(self, ranges: Ranges, *, negated: bool) -> Ranges:
        if self._flags.any_case:
            ranges = with_other_cases(ranges)
        return others(ranges) if negated else ranges

    def _unicode_class(self, *, negated: bool) -> Ranges:
        began = self._at
        self._at += 2
        if self._text.startswith("{", self._at):
            end = self._text.find("}", self._at)
            if end < 0:
                raise PatternError("invalid character class range", self._text[began:])
            name, self._at = self._text[self._at + 1 : end], end + 1
        else:
            name = self._text[self._at : self._at + 1]
            self._at += len(name)
        ranges = character_class(name.removeprefix("^"))
        if ranges is None:
            raise PatternError("invalid character class range", self._text[began : self._at])
        return self._of_group(ranges, negated=negated != name.startswith("^"))

    def _class(self) -> Ranges:
        """Parse a character class [...]."""
        text, began = self._text, self._at
        self._at += 1
        negated = text.startswith("^", self._at)
        self._at += negated
        class_ranges: list[tuple[int, int]] = []
        first = True
        while first or not text.startswith("]", self._at):
            first = False
            if text.startswith("[:", self._at) and (end := text.find(":]", self._at + 2)) >= 0:
                name, self._at = text[self._at + 2 : end], end + 2
                named = _POSIX.get(name.removeprefix("^"))
                if named is None:
                    raise PatternError("invalid character class range", f"[:{name}:]")
                class_ranges += self._of_group(named, negated=name.startswith("^"))
            elif text.startswith("\\", self._at) and (ranges := self._escaped_class()) is not None:
                class_ranges += ranges
            else:
                one = (self._range(began),)
                class_ranges += with_other_cases(one) if self._flags.any_case else one
        self._at += 1
        ranges = joined(class_ranges)
        return others(ranges) if negated else ranges

    def _range(self, began: int) -> tuple[int, int]:
        """Take a character of a class, or a range of them. began: start of the class."""
        start = self._at
        low = high = ord(self._character(began))
        following = self._text[self._at : self._at + 2]
        if len(following) == 2 and following[0] == "-" and following[1] != "]":
            self._at += 1
            high = ord(self._character(began))
            if high < low:
                raise PatternError("invalid character class range", self._text[start : self._at])
        return low, high

    def _character(self, began: int) -> str:
        if self._at >= len(self._text):
            raise PatternError("missing closing ]", self._text[began:])
        if self._text[self._at] == "\\":
            return self._escape()
        self._at += 1
        return self._text[self._at - 1]

    def _escape(self) -> str:
        """Take an escape and return its character."""
        text, began = self._text, self._at
        char = text[began + 1 : began + 2]
        if not char:
            raise PatternError("trailing backslash at end of expression", "")
        self._at += 2
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char.isascii() and not char.isalnum():
            return char
        octal = re.compile("0[0-7]{0,2}|[1-7][0-7]{1,2}").match(text, began + 1)
        if octal is not None:
            self._at = octal.end()
            return chr(int(octal[0], 8))
        if char == "x" and (code := self._hexadecimal()) is not None:
            return chr(code)
        raise PatternError("invalid escape sequence", text[began : self._at])

    def _hexadecimal(self) -> int | None:
        """Take two digits after \\x, or any number in braces; None if invalid."""
        text = self._text
        if not text.startswith("{", self._at):
            digits = text[self._at : self._at + 2]
            self._at += len(digits)
            return int(digits, 16) if re.fullmatch("[0-9a-fA-F]{2}", digits) else None
        self._at += 1
        code, count = 0, 0
        while self._at < len(text):
            char = text[self._at]
            self._at += 1
            if char == "}":
                return code if count else None
            if char not in _HEXADECIMAL:
                return None
            code, count = code * 16 + int(char, 16), count + 1
            if code > ANY[0][1]:
                return None
        return None


_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")


# --- writing ----------------------------------------------------------------------------------------------------------

_PLACES_IN_PYTHON = {
    "text begins": r"\A", "text ends": r"\Z", "line begins": "(?m:^)", "line ends": "(?m:$)", "word edge": r"\b",
    "no word edge": r"(?!\b)",  # Python's \B does not match in an empty text
}  # fmt: skip


def to_python(node: Node) -> re.Pattern[str]:
    """Return the pattern as a Python regular expression."""
    return re.compile(_written(node), re.ASCII)


def _written(node: Node) -> str:
    match node:
        case Chars(ranges):
            return _class_written(ranges)
        case At(where):
            return _PLACES_IN_PYTHON[where]
        case Sequence(parts):
            return "".join(f"(?:{_written(part)})" if isinstance(part, Choice) else _written(part) for part in parts)
        case Choice(choices):
            return "|".join(map(_written, choices))
        case Repeat(of, least, most, lazy):
            one = _written(of) if isinstance(of, Chars) else f"(?:{_written(of)})"
            return f"{one}{_times(least, most)}{'?' if lazy else ''}"


def _times(least: int, most: int | None) -> str:
    sign = next((sign for sign, times in _SIGNS.items() if times == (least, most)), None)
    return sign or f"{{{least},{'' if most is None else most}}}"


def _class_written(ranges: Ranges) -> str:
    if ranges == ANY:
        return "(?s:.)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _char_written(ranges[0][0])
    return f"[{_ranges_written(ranges)}]" if ranges else f"[^{_ranges_written(ANY)}]"


def _ranges_written(ranges: Iterable[tuple[int, int]]) -> str:
    return "".join(
        _char_written(low) if low == high else f"{_char_written(low)}-{_char_written(high)}" for low, high in ranges
    )


def _char_written(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\U{code:08x}"
