"""UserError, which commands print without a traceback. Imports nothing."""

from __future__ import annotations


class UserError(Exception):
    """Invalid user input; `hint` suggests the next step. The CLI prints both, without a traceback."""

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(problem)
        self.hint = hint
