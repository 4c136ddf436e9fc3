"""Skipped tests are summed up by reason; those for unexpected reasons fail the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.development.skipped_tests import SkippedTests


def skipped(reason: str, test: str) -> pytest.TestReport:
    return pytest.TestReport(test, ("", 1, ""), {}, "skipped", ("file.py", 1, f"Skipped: {reason}"), "setup")


def run(*reports: pytest.TestReport, must_fail: bool = True) -> tuple[list[str], int]:
    """Return the lines of the summary and the exit status of a run with these reports."""
    config: Any = SimpleNamespace(getini=lambda name: ["no kubectl.*"], getoption=lambda name: must_fail)
    plugin, lines = SkippedTests(config), list[str]()
    for report in reports:
        plugin.pytest_runtest_logreport(report)
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    plugin.pytest_sessionfinish(session)
    reporter: Any = SimpleNamespace(section=lines.append, line=lines.append)
    plugin.pytest_terminal_summary(reporter)
    return lines, session.exitstatus


def test_expected_reason_is_summed_up() -> None:
    lines, status = run(skipped("no kubectl here", "a"), skipped("no kubectl here", "b"))
    assert lines == ["skipped tests", "    2 no kubectl here"]
    assert status == pytest.ExitCode.OK


@pytest.mark.parametrize("must_fail", [False, True])
def test_unexpected_reason_fails_the_run_if_required(must_fail: bool) -> None:
    lines, status = run(skipped("no kubectl", "a"), skipped("not today", "b"), must_fail=must_fail)
    assert lines[2:] == ["    1 not today", "      not in expected_skips of pyproject.toml: b"]
    assert status == (pytest.ExitCode.TESTS_FAILED if must_fail else pytest.ExitCode.OK)


def test_run_without_skips_has_no_summary() -> None:
    assert run(pytest.TestReport("a", ("", 1, ""), {}, "passed", None, "call")) == ([], pytest.ExitCode.OK)
