"""Percentages computed in float64 equal those of integer division."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.scheduler.plugins.node_resources_scoring import _percent

_DENOMINATORS = st.integers(1, 1 << 10) | st.integers(1, 1 << 40) | st.integers((1 << 46) - 100, (1 << 46) + 100)


@settings(max_examples=300)
@given(data=st.data())
def test_percent_equals_integer_division(data: st.DataObject) -> None:
    denominator = data.draw(_DENOMINATORS)
    percent = data.draw(st.integers(0, 100))
    candidates = [denominator * percent // 100 + off for off in (-1, 0, 1)]
    numerators = [numerator for numerator in candidates if 0 <= numerator <= denominator]
    percents = _percent(np.array([numerators], np.int64), np.full((1, len(numerators)), denominator, np.int64))
    assert percents.dtype == np.int64
    assert percents[0].tolist() == [numerator * 100 // denominator for numerator in numerators]
