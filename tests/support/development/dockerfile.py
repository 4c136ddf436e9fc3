"""Instructions of a Dockerfile."""

from __future__ import annotations

import re
from pathlib import Path

_CONTINUED = re.compile(r"\\\n(?:\s*#.*\n)*")


def instructions(path: Path) -> list[tuple[str, str]]:
    """Return the instructions in order: name and arguments, with continued lines joined."""
    lines = _CONTINUED.sub("", path.read_text()).splitlines()
    pairs = (line.partition(" ") for line in lines if line.strip() and not line.startswith("#"))
    return [(name.upper(), " ".join(arguments.split())) for name, _, arguments in pairs]
