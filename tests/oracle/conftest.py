"""Access to the oracle records, in ../shared/oracle beside the repository or in $KUBELOOP_ORACLE."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Lines of each file of the records beside the repository. A later recording may have somewhat fewer, not half as many.
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
def least_records() -> Callable[[str], int]:
    """Return a function that returns the least number of records of a file ("scheduler/selectors.jsonl.gz").

    A test that compares fewer must not pass. Records that KUBELOOP_ORACLE names may be others, and as few as one.
    """
    if os.environ.get("KUBELOOP_ORACLE"):
        return lambda name: 1
    return lambda name: RECORD_COUNTS[name] // 2


@pytest.fixture(scope="session")
def records(oracle_dir: Path, least_records: Callable[[str], int]) -> Records:
    """Return a function that yields the JSON lines of a file.

    A file that is empty or incomplete fails the test; so does a missing one, unless KUBELOOP_ORACLE names the folder.
    """

    def read(name: str) -> Iterator[dict[str, Any]]:
        if not (oracle_dir / name).is_file() and os.environ.get("KUBELOOP_ORACLE"):
            pytest.skip(f"no oracle records at {oracle_dir / name}")
        count = 0
        with gzip.open(oracle_dir / name, "rt", encoding="utf-8") as lines:
            for line in lines:
                count += 1
                yield json.loads(line)
        if count < least_records(name):
            pytest.fail(f"{name} has only {count} records, fewer than {least_records(name)}")

    return read
