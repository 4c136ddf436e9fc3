"""The console of a command's output: as wide as the terminal or $COLUMNS; a pipe or a file has no width."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

UNLIMITED_COLUMNS = 100_000
"""Width of a pipe or a file: nothing is wrapped or cut."""


def output_console() -> Console:
    """Return a console on stdout."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, width=None if _has_width() else UNLIMITED_COLUMNS)


def output_columns() -> int:
    """Return the width of stdout."""
    return shutil.get_terminal_size().columns if _has_width() else UNLIMITED_COLUMNS


def _has_width() -> bool:
    return sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
