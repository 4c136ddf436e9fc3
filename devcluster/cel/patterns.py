"""Regular expressions of expressions: Go's language.

Source: Go's regexp; the translation is that of custom.formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from kubeloop.devcluster.cel.values import CelError
from kubeloop.devcluster.custom.formats import UnreadablePattern, automaton, compiled

if TYPE_CHECKING:
    from kubeloop.devcluster.custom.automata import Automaton


class Pattern:
    """A pattern that can be looked for."""

    __slots__ = ("_compiled", "_slow")

    def __init__(self, found: re.Pattern[str], slow: Automaton | None) -> None:
        """slow: what runs it instead, if Python could take very long over it."""
        self._compiled = found
        self._slow = slow

    def occurs_in(self, text: str) -> bool:
        return self._compiled.search(text) is not None if self._slow is None else self._slow.occurs_in(text)

    def all_in(self, text: str) -> Iterator[str]:
        """Occurrences from left to right that do not overlap."""
        if self._slow is not None:
            yield from self._slow.all_in(text)
            return
        for match in self._compiled.finditer(text):
            yield match[0]


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Pattern:
    """Raises CelError for what is no pattern."""
    try:
        return Pattern(compiled(pattern), automaton(pattern))
    except UnreadablePattern as error:
        raise CelError(f"error parsing regexp: {_in_words_of_go(pattern, error)}") from None


_WORDS = {
    "missing ), unterminated subpattern": "missing closing ): `{pattern}`",
    "unbalanced parenthesis": "unexpected ): `{pattern}`",
    "unterminated character set": "missing closing ]: `{rest}`",
    "nothing to repeat": "missing argument to repetition operator: `{char}`",
    "multiple repeat": "invalid nested repetition operator: `{two}`",
    "bad escape (end of pattern)": "trailing backslash at end of expression: ``",
}


def _in_words_of_go(pattern: str, error: UnreadablePattern) -> str:
    cause = error.__cause__
    if not isinstance(cause, re.error) or cause.msg not in _WORDS:
        return str(error)
    at = cause.pos or 0
    words = _WORDS[cause.msg]
    return words.format(pattern=pattern, rest=pattern[at:], char=pattern[at : at + 1], two=pattern[at - 1 : at + 1])
