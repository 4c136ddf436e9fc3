"""The files that docs/code-map.md and docs/architecture.md name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("document", ["code-map.md", "architecture.md"])
def test_named_files_exist(document: str) -> None:
    files = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / document).read_text())
    assert len(files) > 25
    assert [file for file in files if not (ROOT / file).is_file()] == []
