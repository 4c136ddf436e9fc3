"""Statuses of rows as an array, cached between scheduling cycles. Axis: N nodes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kubeloop.scheduler.api.status import Status

NO_STATUS = -1


class StatusCodes:
    """The status of each of `count` rows, or none. codes: int32 [N], indexes of `statuses`, or NO_STATUS."""

    __slots__ = ("_code_of", "codes", "statuses")

    def __init__(self, count: int) -> None:
        self.codes: npt.NDArray[np.int32] = np.full(count, NO_STATUS, np.int32)
        self.statuses: list[Status] = []
        self._code_of: dict[int, int] = {}  # by identity of a status in `statuses`

    @property
    def is_full(self) -> bool:
        """Return True if statuses that rows had before take more memory than needed."""
        return len(self.statuses) > len(self.codes) + 64

    def code(self, status: Status) -> int:
        code = self._code_of.get(id(status))
        if code is None:
            code = self._code_of[id(status)] = len(self.statuses)
            self.statuses.append(status)
        return code
