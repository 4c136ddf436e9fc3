"""The files that docs/code-map.md names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_code_map_names_existing_files() -> None:
    files = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / "code-map.md").read_text())
    assert len(files) > 30
    assert [file for file in files if not (ROOT / file).is_file()] == []
