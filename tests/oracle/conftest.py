"""Access to the oracle records, in ../shared/oracle beside the repository or in $KUBELOOP_ORACLE."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Lines of each file; a test that compares fewer records must not pass.
RECORD_COUNTS: dict[str, int] = json.loads((Path(__file__).parent / "record_counts.json").read_text())

Records = Callable[[str], Iterator[dict[str, Any]]]


@pytest.fixture(scope="session")
def oracle_dir() -> Path:
    """Return the folder of the oracle records; skip the test if it does not exist."""
    configured = os.environ.get("KUBELOOP_ORACLE")
    folder = Path(configured) if configured else Path(__file__).resolve().parents[3] / "shared" / "oracle"
    if not folder.is_dir():
        pytest.skip(f"no oracle records at {folder} (set KUBELOOP_ORACLE)")
    return folder


@pytest.fixture(scope="session")
def expected_records() -> Callable[[str], int]:
    """Return a function that returns the number of records of a file ("scheduler/selectors.jsonl.gz")."""
    return RECORD_COUNTS.__getitem__


@pytest.fixture(scope="session")
def records(oracle_dir: Path) -> Records:
    """Return a function that yields the JSON lines of a file. A missing or incomplete file fails the test."""

    def read(name: str) -> Iterator[dict[str, Any]]:
        count = 0
        with gzip.open(oracle_dir / name, "rt", encoding="utf-8") as lines:
            for line in lines:
                count += 1
                yield json.loads(line)
        if count < RECORD_COUNTS[name]:
            pytest.fail(f"{name} has {count} of {RECORD_COUNTS[name]} records (tests/oracle/record_counts.json)")

    return read
