"""Option --trace-journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.cli.options.journal_option import journal_opener
from kubeloop.tracing.journal.trace_journal import TraceJournal


def opened_folder(folder: str | None) -> Path:
    opener = journal_opener(folder, "https://cluster")
    assert opener is not None
    journal = opener()
    assert isinstance(journal, TraceJournal)
    (file,) = journal._folder.glob("*.trace-journal")
    journal.close()
    return file.parent


def test_journal_is_created_in_the_folder_when_it_is_opened(tmp_path: Path):
    assert journal_opener(str(tmp_path / "a"), "https://cluster") is not None
    assert not (tmp_path / "a").exists()
    assert opened_folder(str(tmp_path / "a")) == tmp_path / "a"


def test_default_folder_is_the_runtime_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert opened_folder(None).parent == tmp_path


def test_empty_folder_disables_the_journal():
    assert journal_opener("", "https://cluster") is None
