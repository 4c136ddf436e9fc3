"""String formats of schemas."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.languages.string_formats import has_format, is_known_format


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("date-time", "2026-05-01T12:00:00Z", True),
        ("date-time", "2026-13-01T12:00:00Z", False),
        ("date", "2026-02-30", False),
        ("duration", "1h30m", True),
        ("duration", "3 days", True),
        ("duration", "soon", False),
        ("ipv4", "10.0.0.1", True),
        ("ipv4", "10.0.0.256", False),
        ("cidr", "10.0.0.0/8", True),
        ("uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", True),
        ("hostname", "a.example.com", True),
        ("byte", "AA=!", False),
        ("isbn13", "978-0-306-40615-7", True),
        ("k8s-short-name", "a.b", False),
    ],
)
def test_has_format(name: str, text: str, expected: bool):
    assert has_format(name, text) is expected


def test_known_formats_depend_on_the_type():
    assert is_known_format("string", "date-time")
    assert is_known_format("integer", "int64")
    assert not is_known_format("integer", "date-time")
    assert not is_known_format("string", "unknown")
