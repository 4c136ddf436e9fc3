"""PlacementGenerate and PlacementScore: results of plugins, normalization and weights, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubeloop.scheduler.api.cycle_state import PodGroupCycleState
from kubeloop.scheduler.api.extension_points import Placement, PodGroupAssignments, PodGroupInfo
from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.pod_groups import PodGroupState
from kubeloop.scheduler.framework.plugin_calls import SchedulingError
from kubeloop.scheduler.framework.points.placement_points import PlacementPoints
from kubeloop.scheduler.framework.timing import Timing
from support.scheduling.plugin_cluster import PluginCluster, make_node

GROUP = PodGroupInfo("default", "g")


class Metrics:
    """Records the durations of extension points and plugins."""

    times_extension_points = True

    def __init__(self) -> None:
        self.points: list[tuple[str, str]] = []
        self.plugins: list[tuple[str, str, str]] = []

    def extension_point(self, point: str, status: str, profile: str, seconds: float) -> None:
        self.points.append((point, status))

    def plugin(self, plugin: str, point: str, status: str, seconds: float) -> None:
        self.plugins.append((plugin, point, status))


class Generator:
    name = "Generator"

    def __init__(self, result: Any) -> None:
        self.result = result

    def generate_placements(self, state: Any, group: Any, snapshot: Any, parent: Placement) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result(parent) if callable(self.result) else self.result


class Scorer:
    def __init__(self, name: str, *scores: Any) -> None:
        self.name = name
        self.scores = list(scores)

    def score_placement(self, state: Any, group: Any, snapshot: Any, proposed: PodGroupAssignments) -> int:
        score: Any = self.scores[int(proposed.placement.name)]
        if isinstance(score, Exception):
            raise score
        return int(score)


class Halving(Scorer):
    def normalize_placement_scores(self, state: Any, group: Any, scores: Any) -> Any:
        if scores.max() > 1000:
            raise ValueError("too high")
        return scores // 2


class Points:
    def __init__(self, generate: Any = None, *scorers: Scorer, weights: dict[str, int] | None = None) -> None:
        self.metrics = Metrics()
        self.cluster = PluginCluster([make_node("a"), make_node("b")])
        timing = Timing(self.metrics, "profile", int)  # type: ignore[arg-type]
        points: Any = {"placementGenerate": [Generator(generate)] if generate else [], "placementScore": scorers}
        self.points = PlacementPoints(timing, points, weights or {scorer.name: 1 for scorer in scorers})
        self.state = PodGroupCycleState(PodGroupState())

    def generate(self) -> tuple[list[tuple[str, list[int]]], tuple[Code, str, str] | None]:
        placements, status = self.points.run_generate(self.state, GROUP, self.cluster.snapshot)
        found = [(placement.name, placement.rows.tolist()) for placement in placements]
        return found, None if status is None else (status.code, status.plugin, status.message)

    def score(self, count: int) -> list[int]:
        proposals = [PodGroupAssignments(Placement(str(index), np.zeros(0, np.intp)), ()) for index in range(count)]
        return self.points.run_score(self.state, GROUP, self.cluster.snapshot, proposals).tolist()


def test_all_nodes_are_the_placement_without_a_plugin():
    points = Points()
    assert points.generate() == ([("", [0, 1])], None)
    assert points.metrics.points == [("PlacementGenerate", "Success")]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param(
            lambda parent: ((Placement("first", parent.rows[:1]),), None), ([("first", [0])], None), id="placements"
        ),
        pytest.param(
            ((), None), ([], (Code.UNSCHEDULABLE, "Generator", "no feasible placements found")), id="no placement"
        ),
        pytest.param(((), unschedulable("", "full")), ([], (Code.UNSCHEDULABLE, "Generator", "full")), id="rejection"),
        pytest.param(RuntimeError("broken"), ([], (Code.ERROR, "Generator", "broken")), id="exception"),
    ],
)
def test_results_of_a_generator(result, expected):
    points = Points(result)
    assert points.generate() == expected
    outcome = "Success" if expected[1] is None else expected[1][0].api_name
    assert points.metrics.points == [("PlacementGenerate", outcome)]
    assert [call[:2] for call in points.metrics.plugins] == [("Generator", "PlacementGenerate")]


def test_scores_are_normalized_weighted_and_added():
    points = Points(None, Scorer("A", 10, 20), Halving("B", 80, 200), weights={"A": 3, "B": 2})
    assert points.score(2) == [3 * 10 + 2 * 40, 3 * 20 + 2 * 100]
    assert points.metrics.points == [("PlacementScore", "Success")]
    assert [point for plugin, point, _ in points.metrics.plugins if plugin == "B"] == [
        "PlacementScore",
        "PlacementScore",
        "PlacementScoreExtensionNormalize",
    ]


def test_without_scorers_all_placements_are_equal():
    assert Points().score(3) == [0, 0, 0]


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        pytest.param(
            Scorer("A", 1, RuntimeError("broken")),
            'running PlacementScore plugins: plugin "A" failed with: broken',
            id="score",
        ),
        pytest.param(
            Halving("A", 1, 2000),
            'running NormalizePlacementScore on PlacementScore plugins: plugin "A" failed with: too high',
            id="normalization",
        ),
        pytest.param(
            Scorer("A", 1, 101),
            'applying score defaultWeights on PlacementScore plugins: plugin "A" returns an invalid score 101, it '
            "should in the range of [0, 100] after normalizing",
            id="out of range",
        ),
    ],
)
def test_error_of_a_scorer(scorer, message):
    points = Points(None, scorer)
    with pytest.raises(SchedulingError) as raised:
        points.score(2)
    assert (str(raised.value), raised.value.plugin) == (message, "A")
    assert points.metrics.points == [("PlacementScore", "Error")]
