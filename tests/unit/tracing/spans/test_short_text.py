"""Messages of bounded length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.tracing.spans.short_text import shorten


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0/3 nodes are available", "0/3 nodes are available"),
        ("0/3 nodes are available: none", "0/3 nodes are ..."),
        ("0/3 nodes are avail able", "0/3 nodes are avail able"),
        ("x" * 30, "x" * 20 + " ..."),
    ],
)
def test_shorten_cuts_after_a_word(text, expected):
    assert shorten(text, 24) == expected


@given(st.text(alphabet="ab \n", max_size=60), st.integers(8, 40))
def test_shorten_is_within_the_limit_and_a_prefix(text, limit):
    short = shorten(text, limit)
    assert len(short) <= limit
    assert text.startswith(short.removesuffix(" ..."))
