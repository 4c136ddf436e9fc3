"""Rows of the recorded tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def rows(records: Any) -> Any:
    """Return a function that yields pairs of input and output of a table ("revisions")."""

    def read(table: str) -> Iterator[tuple[Any, Any]]:
        for record in records(f"controllers/tables/{table}.jsonl.gz"):
            yield record["in"], record["out"]

    return read
