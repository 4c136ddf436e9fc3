"""benchmarks/regressions.py: the table, and the CPU time of a command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

import regressions


def test_difference_does_not_depend_on_the_speed_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(regressions, "STORED", tmp_path / "stored.json")
    regressions.STORED.write_text('{"version": "1.0", "multiples": {"start": 2.0, "stop": 1.0}}')
    for speed in (0.5, 1.0, 3.0):
        lines = regressions.table({"start": 2.0 * speed, "stop": 1.1 * speed}, *regressions.released(speed))
        assert lines[0].split("|")[3].strip() == "release 1.0, scaled to this machine"
        assert [line.split("|")[-2].strip() for line in lines[2:]] == ["+0.0%", "+10.0%"]


def test_command_without_stored_figure_is_new():
    assert regressions.table({"start": 2.0}, "release 1.0", {})[-1] == "| start | 2.000 | | new |"


def test_commands_of_another_checkout_import_its_modules(tmp_path, monkeypatch, capsys):
    (tmp_path / "kubeloop").mkdir()
    (tmp_path / "kubeloop" / "__init__.py").write_text("import time\nwhile time.process_time() < 0.3: pass")
    monkeypatch.setattr(regressions, "COMMANDS", {"import": ("-c", "import kubeloop")})
    monkeypatch.setattr(sys, "argv", ["regressions.py", "--seconds", "0", "--checkout", str(tmp_path)])
    regressions.main()
    name, _, other, _ = capsys.readouterr().out.splitlines()[-1].strip("| ").split(" | ")
    assert name == "import"
    assert float(other) >= 0.3


def test_folder_without_kubeloop_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["regressions.py", "--checkout", str(tmp_path)])
    with pytest.raises(SystemExit):
        regressions.main()
    assert "is no checkout of kubeloop: create one with git worktree add DIR COMMIT" in capsys.readouterr().err


def test_cpu_time_contains_that_of_child_processes():
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    assert (
        regressions.cpu_seconds("-c", f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {spin!r}])") > 0.3
    )


def test_command_that_fails_ends_the_run_with_its_output():
    with pytest.raises(SystemExit, match=r"(?s)failed:.*no such thing"):
        regressions.cpu_seconds("-c", "raise SystemExit('no such thing')")
