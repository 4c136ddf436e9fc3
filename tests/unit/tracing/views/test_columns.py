from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.tracing.views.columns import fitting_columns, text_width, word_width


@pytest.mark.parametrize(
    ("available", "shown"),
    [
        pytest.param(14, [0, 1, 2], id="all fit"),
        pytest.param(13, [0, 1], id="the least important one is left out"),
        pytest.param(8, [0], id="then the next one"),
        pytest.param(1, [0], id="a column that is not optional stays"),
    ],
)
def test_fitting_columns_leaves_out_optional_ones(available: int, shown: list[int]) -> None:
    assert fitting_columns([3, 4, 3], (2, 1), available, gap=2) == shown


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 100))
def test_shown_columns_fit_if_the_first_one_does(widths: list[int], available: int) -> None:
    shown = fitting_columns(widths, range(len(widths) - 1, 0, -1), available, gap=2)
    assert shown == sorted(shown)
    assert len(shown) == 1 or sum(widths[index] for index in shown) + 2 * (len(shown) - 1) <= available


def test_widths_of_texts_and_words() -> None:
    assert (text_width(["a b", "\u754c"]), word_width(["ab cde f", "g"]), text_width([])) == (3, 3, 0)
