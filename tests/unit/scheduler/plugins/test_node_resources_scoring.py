"""Shares of resources, computed in float64 for speed, are those of integer division."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.scheduler.plugins.node_resources_scoring import _percent

_WHOLES = st.integers(1, 1 << 10) | st.integers(1, 1 << 40) | st.integers((1 << 46) - 100, (1 << 46) + 100)


@settings(max_examples=300)
@given(data=st.data())
def test_percent_is_that_of_integers_next_to_every_whole_percent_too(data: st.DataObject) -> None:
    whole = data.draw(_WHOLES)
    percent = data.draw(st.integers(0, 100))
    near = [whole * percent // 100 + off for off in (-1, 0, 1)]
    parts = [part for part in near if 0 <= part <= whole]
    found = _percent(np.array([parts], np.int64), np.full((1, len(parts)), whole, np.int64))
    assert found.dtype == np.int64
    assert found[0].tolist() == [part * 100 // whole for part in parts]
