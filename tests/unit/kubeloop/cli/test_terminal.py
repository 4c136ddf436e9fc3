"""Width of a command's output."""

from __future__ import annotations

import io
import sys

import pytest

from kubeloop.cli.terminal import UNLIMITED_COLUMNS, output_columns, output_console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stdout", "columns", "width"),
    [
        pytest.param(io.StringIO(), "", UNLIMITED_COLUMNS, id="pipe"),
        pytest.param(io.StringIO(), "60", 60, id="pipe with COLUMNS"),
        pytest.param(io.StringIO(), "wide", UNLIMITED_COLUMNS, id="pipe with an invalid COLUMNS"),
        pytest.param(Terminal(), "70", 70, id="terminal"),
    ],
)
def test_width_is_unlimited_in_a_pipe(monkeypatch, stdout, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "stdout", stdout)
    assert (output_columns(), output_console().width) == (width, width)


def test_console_prints_long_lines_and_brackets_as_they_are(monkeypatch):
    stdout = io.StringIO()
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "stdout", stdout)
    output_console().print("[bold] " + "1234567890 " * 100)
    assert stdout.getvalue() == "[bold] " + "1234567890 " * 100 + "\n"
