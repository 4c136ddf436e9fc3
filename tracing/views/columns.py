"""Choice of the columns of a table for a narrow terminal: whole columns are left out, so that no number is cut.

Imports rich and the standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len


def fitting_columns(widths: Sequence[int], optional: Sequence[int], available: int, *, gap: int) -> list[int]:
    """Return the indexes of the columns that fit into `available` cells, in order.

    widths: smallest width of each column. optional: columns that may be left out, the least important first. gap: cells
    between two columns.
    """
    shown = list(range(len(widths)))
    for column in optional:
        if sum(widths[index] for index in shown) + gap * (len(shown) - 1) <= available:
            break
        shown.remove(column)
    return shown


def text_width(texts: Iterable[str]) -> int:
    """Return the width of a column that cuts none of the texts."""
    return max(map(cell_len, texts), default=0)


def word_width(texts: Iterable[str]) -> int:
    """Return the width of a column that wraps the texts between words only."""
    return text_width(word for text in texts for word in text.split())
