"""String formats of schemas."""

from __future__ import annotations

import pytest

from kubeloop.kube.validation.string_formats import has_format, is_known_format


@pytest.mark.parametrize(
    ("name", "valid", "invalid"),
    [
        ("date-time", "2026-01-31T10:00:00.5Z", "2026-02-31T10:00:00Z"),
        ("date", "2026-01-31", "2026-1-31"),
        ("duration", "1h30m", "soon"),
        ("ipv4", "10.0.0.1", "10.0.0"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("email", "a@b.c", "a"),
        ("hostname", "a.example", "-a"),
        ("uri", "https://a/b", "a b"),
        ("mac", "01:23:45:67:89:ab", "01:23"),
        ("byte", "aGk=", "?"),
        ("hexcolor", "#ffffff", "#fffff"),
        ("creditcard", "4111111111111111", "4111111111111112"),
        ("isbn", "978-0321751041", "978-0321751042"),
        ("k8s-short-name", "a-b", "a.b"),
        ("k8s-long-name", "a.b", "A.b"),
    ],
)
def test_has_format(name: str, valid: str, invalid: str):
    assert has_format(name, valid)
    assert not has_format(name, invalid)


def test_known_formats_depend_on_the_type():
    assert is_known_format("string", "date-time")
    assert is_known_format("integer", "int64")
    assert not is_known_format("integer", "date-time")
    assert not is_known_format("string", "unknown")
