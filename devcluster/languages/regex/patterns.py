"""Regular expressions in Go's language, ready to be looked for in texts.

Python runs them, unless it could take very long over one: then an automaton does, in a time that grows with the text
and not with its powers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from kubeloop.devcluster.languages.regex.go_syntax import Node, PatternError, in_python, read

if TYPE_CHECKING:
    from kubeloop.devcluster.languages.regex.automata import Automaton

_LONG_TEXT = 2000  # characters


class Pattern:
    """A pattern that can be looked for."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        self._node = read(text)
        self._python = _compiled(self._node, text)
        repeats = _REPEATS.search(text) is not None  # most patterns need no second look
        self._explodes = repeats and _may_explode(self._node)
        self._looks_again = repeats and _looks_again(self._node)
        self._automaton: Automaton | None = None

    def _slow(self, text: str) -> Automaton | None:
        """What runs the pattern on this text, if it is not Python."""
        if not self._explodes and not (self._looks_again and len(text) > _LONG_TEXT):
            return None
        if self._automaton is None:
            from kubeloop.devcluster.languages.regex.automata import Automaton, TooLarge

            try:
                self._automaton = Automaton(self._node)
            except TooLarge:
                self._explodes = self._looks_again = False
        return self._automaton

    def occurs_in(self, text: str) -> bool:
        automaton = self._slow(text)
        return self._python.search(text) is not None if automaton is None else automaton.occurs_in(text)

    def all_in(self, text: str) -> Iterator[str]:
        """Occurrences from left to right that do not overlap; an empty one is not told right behind another."""
        automaton = self._slow(text)
        if automaton is not None:
            yield from automaton.all_in(text)
            return
        at, last = 0, -1
        while (match := self._python.search(text, at)) is not None:  # finditer() would look for more where nothing is
            start, end = match.span()
            if end > start or start != last:
                yield match[0]
                last = end
            at = max(end, start + 1)
            if at > len(text):
                return


_REPEATS = re.compile(r"[*+{]")


def _compiled(node: Node, text: str) -> re.Pattern[str]:
    try:
        return in_python(node)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(f"this server cannot run it ({error})", text) from error


def _may_explode(node: Node) -> bool:
    from kubeloop.devcluster.languages.regex.automata import may_explode  # few patterns need it

    return may_explode(node)


def _looks_again(node: Node) -> bool:
    from kubeloop.devcluster.languages.regex.automata import looks_again  # see above

    return looks_again(node)


@lru_cache(maxsize=1024)
def pattern(text: str) -> Pattern:
    """Raises PatternError."""
    return Pattern(text)


def matches(text: str, value: str) -> bool:
    """Does the pattern occur in the value? True for what is no pattern: no definition with one is accepted."""
    try:
        return pattern(text).occurs_in(value)
    except PatternError:
        return True
