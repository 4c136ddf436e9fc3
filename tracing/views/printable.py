"""Texts of a cluster for a terminal: control characters, with which a message could take control of it, are replaced.

Source: kubectl replaces them likewise (cli-runtime pkg/printers/terminal.go).
"""

from __future__ import annotations

from typing import Any

_REPLACED = {code: f"^{chr(code ^ 0x40)}" for code in (*range(0x20), 0x7F) if chr(code) not in "\n\t"} | {
    code: f"\\x{code:02x}" for code in range(0x80, 0xA0)
}


def printable(value: Any) -> Any:
    """Return a text, or a JSON value with all its texts, without control characters: "^[" for Escape."""
    if isinstance(value, str):
        return value if value.isprintable() else value.translate(_REPLACED)
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [printable(item) for item in value]
    return value
