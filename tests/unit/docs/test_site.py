"""mkdocs.yml: the navigation has every page, and no link of the site is dead."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


def pages_of(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        yield from pages_of([*entry.values()])
    else:
        for child in entry:
            yield from pages_of(child)


def test_navigation_has_every_page_once():
    pages = sorted(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert pages == sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


def test_site_has_no_dead_link(tmp_path):
    own = ROOT / ".venv-docs" / "bin" / "mkdocs"
    mkdocs = own if own.exists() else shutil.which("mkdocs")
    if mkdocs is None:
        pytest.skip("mkdocs is not installed: make docs")
    command = [mkdocs, "build", "--site-dir", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "paths" / "operator-author" / "index.html").exists()
    assert (tmp_path / "files" / "action.yml").exists()
