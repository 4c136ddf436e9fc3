"""benchmarks/regressions.py: the table, and the CPU time of a command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

import regressions


def test_difference_does_not_depend_on_the_speed_of_the_machine():
    for speed in (0.5, 1.0, 3.0):
        lines = regressions.table(
            speed, {"start": 2.0 * speed, "stop": 1.1 * speed}, "1.0", {"start": 2.0, "stop": 1.0}
        )
        assert [line.split("|")[-2].strip() for line in lines[2:]] == ["+0.0%", "+10.0%"]


def test_command_without_stored_figure_is_new():
    assert regressions.table(1.0, {"start": 2.0}, "1.0", {})[-1] == "| start | 2.000 | | new |"


def test_cpu_time_contains_that_of_child_processes():
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    assert (
        regressions.cpu_seconds("-c", f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {spin!r}])") > 0.3
    )


def test_command_that_fails_ends_the_run_with_its_output():
    with pytest.raises(SystemExit, match=r"(?s)failed:.*no such thing"):
        regressions.cpu_seconds("-c", "raise SystemExit('no such thing')")
