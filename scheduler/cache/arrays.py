"""Array types of the columnar snapshot. Axes: N nodes, K rows (some of the nodes, in ascending order)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]
"""Row numbers of the snapshot, ascending: intp [K]."""

Mask = npt.NDArray[np.bool_]
"""True for each row that passes: bool [K]."""

Scores = npt.NDArray[np.int64]
"""One score per row: int64 [K]."""


def check_length(array: npt.NDArray[Any], rows: Rows) -> None:
    """Raise TypeError for an array of another length, which numpy might broadcast."""
    if array.shape != rows.shape:
        raise TypeError(f"returned an array of shape {array.shape} for {len(rows)} nodes")
