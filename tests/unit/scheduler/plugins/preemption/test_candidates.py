"""Choice among the candidates of a preemption (plugins/preemption/candidates.py)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.plugins.preemption.candidates import Candidate, best_candidate

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param([(5, 1)], [(1, 1)], id="fewer budget violations"),
        pytest.param([(1, 1), (1, 1)], [(2, 1)], id="lower highest priority"),
        pytest.param([(2, 1), (0, 1)], [(2, 1), (1, 1)], id="lower sum of priorities"),
        pytest.param([(2, 1)], [(2, 1), (-(1 << 31), 1)], id="fewer victims"),
        pytest.param(
            [(0, 1), (-(1 << 31), 1), (-(1 << 31), 1)], [(0, 1), (0, 1)], id="victims of the lowest priority count 0"
        ),
        pytest.param([(2, 20)], [(2, 10)], id="later start"),
        pytest.param([(2, 20), (1, 5)], [(2, 10), (1, 30)], id="later start of those with the highest priority"),
    ],
)
def test_best_candidate(
    better: list[tuple[int, int]], worse: list[tuple[int, int]], pod: Any, request: pytest.FixtureRequest
) -> None:
    violations = 1 if "violations" in request.node.name else 0

    def candidate(name: str, victims: list[tuple[int, int]], pdb_violations: int) -> Candidate:
        pods = [
            PodInfo(pod(f"v{number}", priority=priority, status={"startTime": f"2026-01-{day:02}T00:00:00Z"}))
            for number, (priority, day) in enumerate(victims)
        ]
        return Candidate(name, tuple(pods), pdb_violations)

    candidates = [candidate("worse", worse, violations), candidate("better", better, 0)]
    assert best_candidate(candidates, NOW).node == "better"
