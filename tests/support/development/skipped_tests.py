"""A pytest plugin that sums up skipped tests by reason, and fails the run after a skip for an unexpected reason."""

from __future__ import annotations

import re

import pytest


class SkippedTests:
    """Skipped tests of a run, as (reason, test or module). Reasons in the option expected_skips are expected."""

    def __init__(self, config: pytest.Config) -> None:
        self._expected = [re.compile(pattern) for pattern in config.getini("expected_skips")]
        self._must_fail: bool = config.getoption("--fail-on-unexpected-skips")
        self._skipped: set[tuple[str, str]] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._add(report)

    def _add(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            assert isinstance(report.longrepr, tuple)
            self._skipped.add((report.longrepr[2].removeprefix("Skipped: "), report.nodeid))

    def _is_expected(self, reason: str) -> bool:
        return any(pattern.fullmatch(reason) for pattern in self._expected)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        unexpected = any(not self._is_expected(reason) for reason, _ in self._skipped)
        if unexpected and self._must_fail and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._skipped:
            return
        terminalreporter.section("skipped tests")
        for reason in sorted({reason for reason, _ in self._skipped}):
            tests = sorted(test for other, test in self._skipped if other == reason)
            terminalreporter.line(f"{len(tests):5} {reason}")
            if not self._is_expected(reason):
                terminalreporter.line("      not in expected_skips of pyproject.toml: " + ", ".join(tests[:5]))
