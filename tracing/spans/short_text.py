"""Messages of bounded length. Imports nothing."""

from __future__ import annotations


def shorten(text: str, limit: int) -> str:
    """Return the text, cut at the end of a word and marked with " ..." if it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 4]
    words = cut if text[limit - 4].isspace() else cut.rpartition(" ")[0] or cut
    return f"{words.rstrip()} ..."
