"""Rows of the tables, and the check that every file of the records is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def rows(records: Any) -> Any:
    """rows("revisions"): pairs of input and output; fails if there are none."""

    def read(table: str) -> Iterator[tuple[Any, Any]]:
        count = 0
        for record in records(f"controllers/tables/{table}.jsonl.gz"):
            yield record["in"], record["out"]
            count += 1
        assert count

    return read
