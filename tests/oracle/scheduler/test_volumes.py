"""Decisions about pods with claims, persistent volumes and in-line disks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Records = Callable[[str], Iterator[dict[str, Any]]]


async def test_every_decision_is_the_recorded_one(records: Records, make_case: Any) -> None:
    for case in records("scheduler/volumes.jsonl.gz"):
        await make_case(case).check()
