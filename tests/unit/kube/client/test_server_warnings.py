from __future__ import annotations

import pytest

from kubeloop.kube.client.server_warnings import parse_warnings


@pytest.mark.parametrize(
    ("header", "texts"),
    [
        pytest.param("", [], id="none"),
        pytest.param('299 - "a is deprecated"', ["a is deprecated"], id="one"),
        pytest.param('299 - "a, b", 299 kube "c"', ["a, b", "c"], id="two, one with a comma"),
        pytest.param('299 - "a", 299 - "a"', ["a"], id="repeated"),
        pytest.param(r'299 - "say \"a\\b\""', [r'say "a\b"'], id="escaped"),
        pytest.param('299 - "a" "Sat, 25 Aug 2026 23:34:45 GMT"', ["a"], id="with a date"),
        pytest.param('110 - "stale", 299 - ""', [], id="other code, empty text"),
        pytest.param('299 - "\u00c3\u00a9"', ["\u00e9"], id="UTF-8"),
        pytest.param("299 - unquoted", [], id="invalid"),
    ],
)
def test_parse_warnings(header: str, texts: list[str]) -> None:
    assert parse_warnings(header) == texts
