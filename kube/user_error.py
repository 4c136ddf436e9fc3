"""UserError, which commands print without a traceback. Imports the standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """Invalid user input; `hint` suggests the next step. The CLI prints both, without a traceback."""

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(problem)
        self.hint = hint


def closest_names(name: str, names: Iterable[str], *, count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return up to `count` of `names` that the user may have meant by `name`, best first."""
    from difflib import get_close_matches

    return get_close_matches(name, names, count, cutoff)


def read_text(path: str | Path, *, hint: str, option: str = "") -> str:
    """Return the text of a file that the user names. Raises UserError, which begins with the option."""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "not text"
        raise UserError(f"{f'{option}: ' if option else ''}cannot read {path}: {problem}", hint=hint) from None
