"""Access to the oracle records, in ../shared/oracle beside the repository or in $KUBELOOP_ORACLE."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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
def records(oracle_dir: Path) -> Records:
    """Return a function that yields the JSON lines of a file ("scheduler/selectors.jsonl.gz"), or skips the test."""

    def read(name: str) -> Iterator[dict[str, Any]]:
        path = oracle_dir / name
        if not path.is_file():
            pytest.skip(f"no oracle records {name} in {oracle_dir}")
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)

    return read
