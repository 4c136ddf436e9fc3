"""The check of array lengths."""

from __future__ import annotations

import numpy as np
import pytest

from kubeloop.scheduler.cache.arrays import check_length


@pytest.mark.parametrize(("length", "valid"), [(3, True), (1, False), (4, False)])
def test_array_needs_one_element_per_row(length: int, valid: bool) -> None:
    array, rows = np.zeros(length, np.int64), np.arange(3)
    if valid:
        check_length(array, rows)
    else:
        with pytest.raises(TypeError, match="for 3 nodes"):
            check_length(array, rows)
