"""Every recorded file is read by a test."""

from __future__ import annotations

from pathlib import Path


def test_every_recorded_file_has_a_test(oracle_dir):
    folder = oracle_dir / "controllers"
    texts = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    unread = [
        path.name
        for path in folder.rglob("*.jsonl.gz")
        if f'"controllers/{path.name}"' not in texts and f'rows("{path.name.removesuffix(".jsonl.gz")}")' not in texts
    ]
    assert unread == []
