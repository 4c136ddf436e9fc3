"""Compiled Go regular expressions.

Python's re runs them, or an automaton in linear time if re might be slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from kubeloop.devcluster.languages.regex.go_syntax import Node, PatternError, parse, to_python

if TYPE_CHECKING:
    from kubeloop.devcluster.languages.regex.automata import Automaton

_LONG_TEXT = 2000  # characters


class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        self._node = parse(text)
        self._python = _compiled(self._node, text)
        repeats = _REPEATS.search(text) is not None  # most patterns need no further check
        self._explodes = repeats and _may_backtrack_exponentially(self._node)
        self._may_scan_quadratically = repeats and _may_scan_quadratically(self._node)
        self._automaton: Automaton | None = None

    def _slow(self, text: str) -> Automaton | None:
        """Return the automaton to use for this text, or None if Python's re runs the pattern."""
        if not self._explodes and not (self._may_scan_quadratically and len(text) > _LONG_TEXT):
            return None
        if self._automaton is None:
            from kubeloop.devcluster.languages.regex.automata import Automaton, TooLarge

            try:
                self._automaton = Automaton(self._node)
            except TooLarge:
                self._explodes = self._may_scan_quadratically = False
        return self._automaton

    def occurs_in(self, text: str) -> bool:
        automaton = self._slow(text)
        return self._python.search(text) is not None if automaton is None else automaton.occurs_in(text)

    def all_in(self, text: str) -> Iterator[str]:
        """Yield non-overlapping matches from left to right; no empty match directly after another match."""
        automaton = self._slow(text)
        if automaton is not None:
            yield from automaton.all_in(text)
            return
        at, last = 0, -1
        while (match := self._python.search(text, at)) is not None:  # finditer() treats empty matches differently
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
        return to_python(node)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(f"this server cannot run it ({error})", text) from error


def _may_backtrack_exponentially(node: Node) -> bool:
    from kubeloop.devcluster.languages.regex.automata import may_backtrack_exponentially  # few patterns need it

    return may_backtrack_exponentially(node)


def _may_scan_quadratically(node: Node) -> bool:
    from kubeloop.devcluster.languages.regex.automata import may_scan_quadratically  # see above

    return may_scan_quadratically(node)


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Pattern:
    """Compile a pattern. Raises PatternError."""
    return Pattern(text)


def matches(text: str, value: str) -> bool:
    """Return True if the value contains a match, or the pattern is invalid (such a definition is never accepted)."""
    try:
        return compile_pattern(text).occurs_in(value)
    except PatternError:
        return True
