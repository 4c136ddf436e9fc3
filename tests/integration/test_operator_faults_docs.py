"""The example of docs/operator-faults.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "operator-faults.md"
BLOCK = re.compile(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", re.DOTALL)
SENTENCE = re.compile(r"^1\. after a crash.*$", re.MULTILINE)


def test_example_of_the_page_fails_as_the_page_shows(tmp_path: Path):
    pytest.importorskip("kubernetes", reason="kubernetes is not installed")
    blocks = dict(BLOCK.findall(DOCS.read_text()))
    assert list(blocks) == ["site_operator.py", "site.yaml", "test_site_operator.py"]
    for name, content in blocks.items():  # the same findings, in less time
        (tmp_path / name).write_text(content.replace("timeout=10", "timeout=6, quiet=1, jobs=4"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_site_operator.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (expected,) = SENTENCE.findall(DOCS.read_text())
    assert expected in done.stdout
    assert "2 writes, 2 fault classes, 4 runs" in done.stdout
