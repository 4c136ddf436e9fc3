"""Matching without backtracking, in time linear in the length of the text.

Go's regexp never backtracks; Python's re does, and needs exponential time for patterns such as `(a+)+$`. Patterns that
may cause this (nested repetitions) run here: all alternatives advance together, character by character, and each set of
states is cached with its successors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.devcluster.languages.regex import unicode_classes
from kubeloop.devcluster.languages.regex.go_syntax import At, Chars, Choice, Node, Repeat, Sequence

_MAX_STATES = 20_000
_MAX_CACHED_STATES = 200_000  # in both caches
_BEGINS_TEXT, _ENDS_TEXT, _BEGINS_LINE, _ENDS_LINE, _WORD_EDGE = 1, 2, 4, 8, 16
_PLACES = {
    "text begins": (_BEGINS_TEXT, True),
    "text ends": (_ENDS_TEXT, True),
    "line begins": (_BEGINS_LINE, True),
    "line ends": (_ENDS_LINE, True),
    "word edge": (_WORD_EDGE, True),
    "no word edge": (_WORD_EDGE, False),
}
_FEW = 3  # copies that do not matter
_MANY = 100  # copies that count as unbounded


class TooLarge(Exception):
    """The pattern has too many states."""


def may_backtrack_exponentially(node: Node, *, within: bool = False) -> bool:
    """Return True if re may need exponential time: a repetition can match the same text in several ways."""
    match node:
        case Sequence(parts):
            endless = sum(isinstance(part, Repeat) and (part.most is None or part.most > _MANY) for part in parts)
            return endless > 2 or any(
                may_backtrack_exponentially(part, within=within) for part in parts
            )  # x*x*x*: the third power
        case Choice(choices):
            return within or any(may_backtrack_exponentially(choice) for choice in choices)
        case Repeat(of, least, most):
            varies = least != most
            return (within and varies) or may_backtrack_exponentially(of, within=within or most is None or most > _FEW)
    return False


def may_scan_quadratically(node: Node) -> bool:
    """Return True if re may scan part of a long text repeatedly, from one start position after the other."""
    match node:
        case Sequence(parts):
            anchored = bool(parts) and parts[0] == At("text begins")
            endless = sum(may_scan_quadratically(part) for part in (parts[1:] if anchored else parts))
            return endless > anchored
        case Choice(choices):
            return any(may_scan_quadratically(choice) for choice in choices)
        case Repeat(of, _, most):
            return most is None or most > _MANY or may_scan_quadratically(of)
    return False


class Automaton:
    """A pattern as states: ("take", ranges, next), ("fork", first, second), ("at", where, next), ("match",)."""

    def __init__(self, pattern: Node) -> None:
        """Raises TooLarge."""
        self._states: list[tuple[Any, ...]] = []
        self._start = self._built(pattern, self._add("match"))
        self._steps: dict[tuple[tuple[int, ...], int, str], tuple[int, ...]] = {}
        self._closures: dict[tuple[tuple[int, ...], int], tuple[tuple[int, ...], bool]] = {}
        self._remembered = 0

    # --- construction: backwards, so that the successor of each state exists ------------------------------------------

    def _add(self, *state: Any) -> int:
        if len(self._states) > _MAX_STATES:
            raise TooLarge
        self._states.append(state)
        return len(self._states) - 1

    def _built(self, node: Node, following: int) -> int:
        match node:
            case Chars(ranges):
                return self._add("take", ranges, following)
            case At(where):
                return self._add("at", _PLACES[where], following)
            case Sequence(parts):
                for part in reversed(parts):
                    following = self._built(part, following)
                return following
            case Choice(choices):
                *entries, last = [self._built(choice, following) for choice in choices]
                for entry in reversed(entries):
                    last = self._add("fork", entry, last)
                return last
            case Repeat():
                return self._repeated(node, following)

    def _repeated(self, node: Repeat, following: int) -> int:
        if node.most is None:
            entry = self._add("fork", -1, -1)
            body = self._built(node.of, entry)
            self._states[entry] = ("fork", following, body) if node.lazy else ("fork", body, following)
        else:
            entry = following
            for _ in range(node.most - node.least):
                body = self._built(node.of, entry)
                entry = self._add("fork", following, body) if node.lazy else self._add("fork", body, following)
        for _ in range(node.least):
            entry = self._built(node.of, entry)
        return entry

    # --- running ------------------------------------------------------------------------------------------------------

    def _closure(self, states: tuple[int, ...], place: int) -> tuple[tuple[int, ...], bool]:
        """Return (states that can take a character, in order of preference up to a match; True if it can end here)."""
        cached = self._closures.get((states, place))
        if cached is not None:
            return cached
        takers: list[int] = []
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
                break  # alternatives less preferred than a match are ignored
            if state[0] == "fork":
                stack += [state[2], state[1]]
            elif state[0] == "at":
                where, holds = state[1]
                if bool(place & where) is holds:
                    stack.append(state[2])
            else:
                takers.append(number)
        self._make_room(len(states) + len(takers))
        self._closures[states, place] = tuple(takers), ends
        return tuple(takers), ends

    def _step(self, states: tuple[int, ...], place: int, char: str) -> tuple[int, ...]:
        next_states = self._steps.get((states, place, char))
        if next_states is None:
            takers, _ = self._closure(states, place)
            code = ord(char)
            successors = [
                self._states[taker][2] for taker in takers if unicode_classes.within(code, self._states[taker][1])
            ]
            next_states = tuple(dict.fromkeys(successors))
            self._make_room(len(states) + len(successors))
            self._steps[states, place, char] = next_states
        return next_states

    def _make_room(self, count: int) -> None:
        """Clear the caches if they cannot hold `count` more states."""
        self._remembered += count
        if self._remembered > _MAX_CACHED_STATES:
            self._steps.clear()
            self._closures.clear()
            self._remembered = count

    def occurs_in(self, text: str) -> bool:
        """Return True if the text contains a match."""
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
        """Yield non-overlapping matches from left to right; no empty match directly after another match."""
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
        """Return the end of the preferred match that starts at `start`, if any."""
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
    """Return the properties of the place between two characters."""
    before, after = text[at - 1] if at else "", text[at] if at < len(text) else ""
    place = (_BEGINS_TEXT | _BEGINS_LINE) if not at else 0
    place |= (_ENDS_TEXT | _ENDS_LINE) if not after else 0
    place |= (_BEGINS_LINE if before == "\n" else 0) | (_ENDS_LINE if after == "\n" else 0)
    return place | (_WORD_EDGE if (bool(before) and _is_word(before)) != (bool(after) and _is_word(after)) else 0)
