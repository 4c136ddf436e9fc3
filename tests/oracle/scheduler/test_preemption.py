"""Decisions on full clusters: preemption victims, PodDisruptionBudgets and nominated nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Records = Callable[[str], Iterator[dict[str, Any]]]


async def test_decisions_match_kube_scheduler(records: Records, make_case: Any) -> None:
    for case in records("scheduler/preemption.jsonl.gz"):
        await make_case(case).check()
