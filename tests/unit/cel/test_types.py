"""Escaping of property names to CEL identifiers."""

from __future__ import annotations

from kubeloop.cel.types import escape, unescape


def test_property_names_are_escaped_to_identifiers():
    names = ["a", "a-b", "c.d/e", "f__g", "namespace"]
    assert [escape(name) for name in names] == [
        "a", "a__dash__b", "c__dot__d__slash__e", "f__underscores__g", "__namespace__",
    ]  # fmt: skip
    assert [unescape(str(escape(name))) for name in names] == names
    assert escape("1a") is None
    assert escape("a b") is None
