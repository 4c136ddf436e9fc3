"""BlockDict behaves as dict, and so do its copies, whatever is written to any of them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.scheduler.cache import block_dict
from kubeloop.scheduler.cache.block_dict import BlockDict

_KEYS = st.integers(0, 12)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 3), _KEYS),
        st.tuples(st.just("delete"), st.integers(0, 3), _KEYS),
        st.tuples(st.just("copy"), st.integers(0, 3), st.integers(0, 3)),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(steps=_STEPS, block_size=st.integers(1, 4))
def test_copies_are_independent(steps, block_size):
    expected: list[dict[int, int]] = [{}, {}, {}, {}]
    actual: list[BlockDict[int, int]] = [BlockDict() for _ in expected]
    original, block_dict._BLOCK_SIZE = block_dict._BLOCK_SIZE, block_size
    try:
        for value, (action, target, argument) in enumerate(steps):
            if action == "set":
                expected[target][argument] = actual[target][argument] = value
            elif action == "delete":
                assert actual[target].pop(argument, None) == expected[target].pop(argument, None)
            else:
                expected[argument], actual[argument] = expected[target].copy(), actual[target].copy()
    finally:
        block_dict._BLOCK_SIZE = original
    for content, blocks in zip(expected, actual, strict=True):
        assert blocks == content
        assert (list(blocks.keys()), list(blocks.values())) == (list(content.keys()), list(content.values()))
        assert len(blocks) == len(content)
        assert [key in blocks for key in range(13)] == [key in content for key in range(13)]


def test_a_write_copies_one_block():
    pods: BlockDict[int, int] = BlockDict()
    for number in range(1000):
        pods[number] = number
    copy = pods.copy()
    pods[500] = -1
    assert sum(mine is not theirs for mine, theirs in zip(pods._blocks, copy._blocks, strict=True)) == 1
    assert copy[500] == 500
