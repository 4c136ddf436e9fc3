"""Regular expressions in a time that grows with the text, and not with its powers.

Go's regular expressions never go back in a text; Python's do, and `(a+)+$` takes them a century for forty characters.
Patterns that can do this to them (repetitions within repetitions) are run here instead: all ways to match at once,
character by character, each set of ways remembered with what follows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.devcluster.languages.regex import unicode_classes
from kubeloop.devcluster.languages.regex.go_syntax import At, Chars, Choice, Node, Repeat, Sequence

_MAX_STATES = 20_000
_MAX_REMEMBERED = 200_000  # states, in all that is remembered
_BEGINS_TEXT, _ENDS_TEXT, _BEGINS_LINE, _ENDS_LINE, _WORD_EDGE = 1, 2, 4, 8, 16
_PLACES = {
    "text begins": (_BEGINS_TEXT, True),
    "text ends": (_ENDS_TEXT, True),
    "line begins": (_BEGINS_LINE, True),
    "line ends": (_ENDS_LINE, True),
    "word edge": (_WORD_EDGE, True),
    "no word edge": (_WORD_EDGE, False),
}
_FEW = 3  # copies of something that are no matter
_MANY = 100  # copies that are as bad as any number


class TooLarge(Exception):
    """A pattern with too many states to be run here."""


def may_explode(node: Node, *, within: bool = False) -> bool:
    """Could Python take very long over it: is there a repetition in which the same can be matched in several ways?"""
    match node:
        case Sequence(parts):
            endless = sum(isinstance(each, Repeat) and (each.most is None or each.most > _MANY) for each in parts)
            return endless > 2 or any(may_explode(each, within=within) for each in parts)  # x*x*x*: the third power
        case Choice(choices):
            return within or any(may_explode(each) for each in choices)
        case Repeat(of, least, most):
            varies = least != most
            return (within and varies) or may_explode(of, within=within or most is None or most > _FEW)
    return False


def looks_again(node: Node) -> bool:
    """Could Python look at a part of a long text again and again, beginning at one place after the other?"""
    match node:
        case Sequence(parts):
            anchored = bool(parts) and parts[0] == At("text begins")
            endless = sum(looks_again(each) for each in (parts[1:] if anchored else parts))
            return endless > anchored
        case Choice(choices):
            return any(looks_again(each) for each in choices)
        case Repeat(of, _, most):
            return most is None or most > _MANY or looks_again(of)
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

    # --- construction: from behind, so that each state knows what follows it ------------------------------------------

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
                for each in reversed(parts):
                    following = self._built(each, following)
                return following
            case Choice(choices):
                *entries, last = [self._built(each, following) for each in choices]
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
        self._make_room(len(states) + len(found))
        self._closures[states, place] = tuple(found), ends
        return tuple(found), ends

    def _step(self, states: tuple[int, ...], place: int, char: str) -> tuple[int, ...]:
        known = self._steps.get((states, place, char))
        if known is None:
            takers, _ = self._closure(states, place)
            code = ord(char)
            found = [self._states[each][2] for each in takers if unicode_classes.within(code, self._states[each][1])]
            known = tuple(dict.fromkeys(found))
            self._make_room(len(states) + len(found))
            self._steps[states, place, char] = known
        return known

    def _make_room(self, count: int) -> None:
        """Before this many more states are remembered."""
        self._remembered += count
        if self._remembered > _MAX_REMEMBERED:
            self._steps.clear()
            self._closures.clear()
            self._remembered = count

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
