"""Texts of a cluster for a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from kubeloop.tracing.views.printable import printable
from kubeloop.tracing.views.waterfall import waterfall
from support.traces.trace_documents import document


def test_control_characters_are_replaced():
    assert printable("a\x1b[31m\x07\r\x7f\x9bb\n\tü") == "a^[[31m^G^M^?\\x9bb\n\tü"
    assert printable({"a\x1b": ["\x00", 1, None, {"b": True}]}) == {"a^[": ["^@", 1, None, {"b": True}]}


def test_waterfall_prints_no_escape_sequence_of_a_pod():
    console = Console(file=io.StringIO())
    console.print(waterfall(document(name="web", error="\x1b]0;title\x07")))
    text = console.file.getvalue()
    assert "^[]0;title^G" in text
    assert "\x1b" not in text
