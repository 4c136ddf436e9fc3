"""Sets of completion indexes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controllers.job.indexes import index_set, parse_indexes

INDEXES = st.sets(st.integers(0, 40))


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        pytest.param("", set(), id="empty"),
        pytest.param("0,2-4,6,7", {0, 2, 3, 4, 6, 7}, id="intervals"),
        pytest.param("0,1,2", {0, 1, 2}, id="neighbours"),
        pytest.param("1,x,3-y,4", {1, 4}, id="corrupted intervals are ignored"),
        pytest.param("8-12,15", {8, 9}, id="indexes from completions on are dropped"),
    ],
)
def test_parse_indexes(text, indexes):
    assert parse_indexes(text, 10) == index_set(indexes)


@given(INDEXES)
def test_notation_is_parsed_again(indexes):
    assert parse_indexes(str(index_set(indexes)), 100) == index_set(indexes)


@pytest.mark.parametrize(
    ("indexes", "text"), [({3}, "3"), ({3, 4}, "3,4"), ({3, 4, 5}, "3-5"), ({0, 2, 3, 4, 9, 10}, "0,2-4,9,10")]
)
def test_notation_is_that_of_the_api(indexes, text):
    assert str(index_set(indexes)) == text


@given(INDEXES, INDEXES, st.integers(0, 45))
def test_operations_are_those_of_sets(first, second, index):
    a, b = index_set(first), index_set(second)
    assert len(a) == len(first)
    assert a | b == index_set(first | second)
    assert a.overlap(b) == len(first & second)
    assert (index in a) == (index in first)


@given(INDEXES, st.integers(0, 10), st.integers(0, 45))
def test_first_missing_returns_the_smallest_ones(indexes, count, end):
    expected = [index for index in range(end) if index not in indexes][:count]
    assert index_set(indexes).first_missing(count, end) == expected
