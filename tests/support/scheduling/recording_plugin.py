"""A scheduler plugin whose calls are recorded."""

from __future__ import annotations

from typing import Any


class RecordingPlugin:
    """Base of plugins with given results. calls: of all plugins. results: by method, a value or an exception."""

    def __init__(self, name: str, calls: list[str], **results: Any) -> None:
        self.name = name
        self.calls = calls
        self.results = results

    def _call(self, method: str) -> Any:
        self.calls.append(f"{self.name}.{method}")
        result = self.results.get(method)
        if isinstance(result, Exception):
            raise result
        return result
