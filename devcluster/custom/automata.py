"""Regular expressions in a time that grows with the text, and not with its powers.

Go's regular expressions never go back in a text; Python's do, and `(a+)+$` takes them a century for forty characters.
Patterns that can do this to them (repetitions within repetitions) are run here instead: all ways to match at once,
character by character, each set of ways remembered with what follows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from re import _constants as ops  # type: ignore[attr-defined] # how Python reads a pattern
from re import _parser  # type: ignore[attr-defined]
from typing import Any

_MAX_STATES = 20_000
_MAX_REMEMBERED = 5_000
_BEGINS_TEXT, _ENDS_TEXT, _BEGINS_LINE, _ENDS_LINE, _WORD_EDGE = 1, 2, 4, 8, 16

Takes = Callable[[str], bool]


class TooLarge(Exception):
    """A pattern with too many states to be run here."""


def may_explode(pattern: re.Pattern[str]) -> bool:
    """Could Python take very long over this pattern: is there a repetition in which the same can be matched twice?"""
    return _nested(_parser.parse(pattern.pattern, pattern.flags), within=False)


def _nested(parsed: Any, *, within: bool) -> bool:
    unbounded = 0
    for op, argument in parsed:
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            least, most, inner = argument
            repeats = most > 1 and least != most
            unbounded += most > 100
            if (within and repeats) or _nested(inner, within=within or (most > 1 and most > 3)):
                return True
        elif op is ops.SUBPATTERN:
            if _nested(argument[3], within=within):
                return True
        elif op is ops.BRANCH and (within or any(_nested(each, within=within) for each in argument[1])):
            return True
    return unbounded > 2  # x*x*x*: the third power


class Automaton:
    """A pattern as states: ("take", takes, next), ("fork", first, second), ("at", where, next), ("match",)."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        """Raises TooLarge."""
        self._flags = pattern.flags
        self._states: list[tuple[Any, ...]] = []
        self._start = self._sequence(_parser.parse(pattern.pattern, pattern.flags), self._add("match"))
        self._steps: dict[tuple[tuple[int, ...], int, str], tuple[int, ...]] = {}
        self._closures: dict[tuple[tuple[int, ...], int], tuple[tuple[int, ...], bool]] = {}

    # --- construction: from behind, so that each state knows what follows it ------------------------------------------

    def _add(self, *state: Any) -> int:
        if len(self._states) > _MAX_STATES:
            raise TooLarge
        self._states.append(state)
        return len(self._states) - 1

    def _sequence(self, parsed: Any, following: int) -> int:
        for op, argument in reversed(list(parsed)):
            following = self._one(op, argument, following)
        return following

    def _one(self, op: Any, argument: Any, following: int) -> int:
        if op is ops.SUBPATTERN:
            return self._sequence(argument[3], following)
        if op is ops.BRANCH:
            first, *rest = [self._sequence(each, following) for each in argument[1]][::-1]
            for each in rest:
                first = self._add("fork", each, first)
            return first
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            least, most, inner = argument
            return self._repeated(int(least), int(most), inner, following, lazy=op is ops.MIN_REPEAT)
        if op is ops.AT:
            return self._add("at", self._place(argument), following)
        return self._add("take", _takes(op, argument, self._flags), following)

    def _repeated(self, least: int, most: int, inner: Any, following: int, *, lazy: bool) -> int:
        if most == ops.MAXREPEAT:
            loop = self._add("fork", -1, -1)
            body = self._sequence(inner, loop)
            self._states[loop] = ("fork", following, body) if lazy else ("fork", body, following)
            entry = loop
        else:
            entry = following
            for _ in range(most - least):
                body = self._sequence(inner, entry)
                entry = self._add("fork", following, body) if lazy else self._add("fork", body, following)
        for _ in range(least):
            entry = self._sequence(inner, entry)
        return entry

    def _place(self, where: Any) -> tuple[int, bool]:
        multiline = bool(self._flags & re.MULTILINE)
        return {
            ops.AT_BEGINNING: (_BEGINS_LINE if multiline else _BEGINS_TEXT, True),
            ops.AT_BEGINNING_STRING: (_BEGINS_TEXT, True),
            ops.AT_END: (_ENDS_LINE if multiline else _ENDS_TEXT, True),
            ops.AT_END_STRING: (_ENDS_TEXT, True),
            ops.AT_BOUNDARY: (_WORD_EDGE, True),
            ops.AT_NON_BOUNDARY: (_WORD_EDGE, False),
        }[where]

    # --- running ------------------------------------------------------------------------------------------------------

    def _closure(self, states: tuple[int, ...], place: int) -> tuple[tuple[int, ...], bool]:
        """(what can be taken from there, in order of preference up to a match; can the pattern end here)."""
        known = self._closures.get((states, place))
        if known is not None:
            return known
        found: list[int] = []
        seen: set[int] = set()
        stack, ends = list(reversed(states)), False
        while stack:
            number = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            state = self._states[number]
            if state[0] == "match":
                ends = True
                break  # what is less preferred than a match does not count
            if state[0] == "fork":
                stack += [state[2], state[1]]
            elif state[0] == "at":
                where, holds = state[1]
                if bool(place & where) is holds:
                    stack.append(state[2])
            else:
                found.append(number)
        if len(self._closures) > _MAX_REMEMBERED:
            self._closures.clear()
        self._closures[states, place] = tuple(found), ends
        return tuple(found), ends

    def _step(self, states: tuple[int, ...], place: int, char: str) -> tuple[int, ...]:
        known = self._steps.get((states, place, char))
        if known is None:
            takers, _ = self._closure(states, place)
            found = [self._states[each][2] for each in takers if self._states[each][1](char)]
            known = tuple(dict.fromkeys(found))
            if len(self._steps) > _MAX_REMEMBERED:
                self._steps.clear()
            self._steps[states, place, char] = known
        return known

    def occurs_in(self, text: str) -> bool:
        """Is there a match anywhere?"""
        states: tuple[int, ...] = ()
        for at in range(len(text) + 1):
            place = _place(text, at)
            states = (*states, self._start) if self._start not in states else states
            if self._closure(states, place)[1]:
                return True
            if at < len(text):
                states = self._step(states, place, text[at])
        return False

    def all_in(self, text: str) -> Iterator[str]:
        """Occurrences from left to right that do not overlap; an empty one is not told right behind another."""
        at = last = 0
        while at <= len(text):
            end = self._match_at(text, at)
            if end is None or (end == at and at == last and at > 0):
                at += 1
                continue
            yield text[at:end]
            last = end
            at = end if end > at else end + 1

    def _match_at(self, text: str, start: int) -> int | None:
        """Where the preferred match that begins there ends."""
        states: tuple[int, ...] = (self._start,)
        end = None
        for at in range(start, len(text) + 1):
            place = _place(text, at)
            if self._closure(states, place)[1]:
                end = at
            if at == len(text):
                break
            states = self._step(states, place, text[at])
            if not states:
                break
        return end


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def _place(text: str, at: int) -> int:
    """What is true between two characters."""
    before, after = text[at - 1] if at else "", text[at] if at < len(text) else ""
    place = (_BEGINS_TEXT | _BEGINS_LINE) if not at else 0
    place |= (_ENDS_TEXT | _ENDS_LINE) if not after else 0
    place |= (_BEGINS_LINE if before == "\n" else 0) | (_ENDS_LINE if after == "\n" else 0)
    return place | (_WORD_EDGE if (bool(before) and _is_word(before)) != (bool(after) and _is_word(after)) else 0)


_CATEGORIES = {
    ops.CATEGORY_DIGIT: r"[0-9]", ops.CATEGORY_NOT_DIGIT: r"[^0-9]", ops.CATEGORY_SPACE: r"[\t\n\f\r ]",
    ops.CATEGORY_NOT_SPACE: r"[^\t\n\f\r ]", ops.CATEGORY_WORD: r"[0-9A-Za-z_]",
    ops.CATEGORY_NOT_WORD: r"[^0-9A-Za-z_]",
}  # fmt: skip


def _takes(op: Any, argument: Any, flags: int) -> Takes:
    """Which characters a part of a pattern takes."""
    if op is ops.ANY:
        return (lambda _char: True) if flags & re.DOTALL else (lambda char: char != "\n")
    items = [(op, argument)] if op is not ops.IN else list(argument)
    negated = bool(items) and items[0][0] is ops.NEGATE
    checks = [_check(*each) for each in items if each[0] is not ops.NEGATE]

    def takes(char: str) -> bool:
        forms = {char, char.lower(), char.upper()} if flags & re.IGNORECASE else {char}
        return any(check(each) for check in checks for each in forms if len(each) == 1) is not negated

    return takes


def _check(op: Any, argument: Any) -> Takes:
    if op is ops.LITERAL:
        return lambda char: ord(char) == argument
    if op is ops.NOT_LITERAL:
        return lambda char: ord(char) != argument
    if op is ops.RANGE:
        low, high = argument
        return lambda char: low <= ord(char) <= high
    fits = re.compile(_CATEGORIES[argument]).match
    return lambda char: fits(char) is not None
