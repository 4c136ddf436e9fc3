"""BlockMap has the entries of a dict, and so do its copies, whatever is written to any of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.scheduler.cache import block_map
from kubeloop.scheduler.cache.block_map import BlockMap

_KEYS = st.integers(0, 12)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), _KEYS),
        st.tuples(st.just("pop"), st.integers(0, 3), _KEYS),
        st.tuples(st.just("copy"), st.integers(0, 3), st.integers(0, 3)),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(steps=_STEPS, block_size=st.integers(1, 4))
def test_copies_are_independent(steps, block_size):
    expected: list[dict[int, int]] = [{}, {}, {}, {}]
    actual: list[BlockMap[int, int]] = [BlockMap() for _ in expected]
    original, block_map._BLOCK_SIZE = block_map._BLOCK_SIZE, block_size
    try:
        for value, (action, target, argument) in enumerate(steps):
            if action == "add":
                if argument not in expected[target]:
                    expected[target][argument] = value
                    actual[target].add(argument, value)
            elif action == "pop":
                if argument in expected[target]:
                    assert actual[target].pop(argument) == expected[target].pop(argument)
                else:
                    with pytest.raises(KeyError):
                        actual[target].pop(argument)
            else:
                expected[argument], actual[argument] = expected[target].copy(), actual[target].copy()
    finally:
        block_map._BLOCK_SIZE = original
    for content, blocks in zip(expected, actual, strict=True):
        assert blocks == content
        assert (list(blocks.keys()), list(blocks.values())) == (list(content.keys()), list(content.values()))
        assert len(blocks) == len(content)
        assert [key in blocks for key in range(13)] == [key in content for key in range(13)]


def test_a_write_copies_one_block():
    pods: BlockMap[int, int] = BlockMap()
    for number in range(1000):
        pods.add(number, number)
    copy = pods.copy()
    assert pods.pop(500) == 500
    assert sum(mine is not theirs for mine, theirs in zip(pods._blocks, copy._blocks, strict=True)) == 1
    assert copy[500] == 500
