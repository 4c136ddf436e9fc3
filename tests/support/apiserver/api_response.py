"""A response of any API server, in the form in which responses are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ApiResponse:
    """content: the value of a JSON body, the text of any other body."""

    status: int
    content: Any
    warnings: tuple[str, ...] = ()
    media_type: str = ""
    body: bytes = b""
