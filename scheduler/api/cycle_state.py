"""CycleState: what plugins store about one pod during its scheduling cycle."""

from __future__ import annotations

from typing import Any


class CycleState:
    """What plugins remember of one pod between extension points, by key; `clone` is taken for dry runs.

    Values with a `clone()` method are cloned with it, others are shared.
    """

    __slots__ = ("_values", "measured", "skip_filter", "skip_pre_bind", "skip_score")

    def __init__(self, *, measured: bool = False) -> None:
        """measured: the duration of each plugin's calls is reported."""
        self.measured = measured
        self._values: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()
        self.skip_pre_bind: set[str] = set()

    def write(self, key: str, value: Any) -> None:
        self._values[key] = value

    def read(self, key: str) -> Any:
        """Raises KeyError if nobody wrote `key` in this cycle."""
        return self._values[key]

    def get(self, key: str) -> Any | None:
        return self._values.get(key)

    def clone(self) -> CycleState:
        twin = CycleState(measured=self.measured)
        twin._values = {key: value.clone() if hasattr(value, "clone") else value for key, value in self._values.items()}
        twin.skip_filter = set(self.skip_filter)
        twin.skip_score = set(self.skip_score)
        twin.skip_pre_bind = set(self.skip_pre_bind)
        return twin
