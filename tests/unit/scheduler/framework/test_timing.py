"""Durations of extension points and plugins."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.framework.timing import MEASURED_CYCLES, TimedPreEnqueue, Timing, observed, observed_async
from kubeloop.scheduler.metrics import NO_METRICS


class Metrics:
    """Records the reported durations."""

    times_extension_points = True

    def __init__(self) -> None:
        self.points: list[tuple[str, str, str, float]] = []
        self.plugins: list[tuple[str, str, str, float]] = []

    def extension_point(self, point: str, status: str, profile: str, seconds: float) -> None:
        self.points.append((point, status, profile, seconds))

    def plugin(self, plugin: str, point: str, status: str, seconds: float) -> None:
        self.plugins.append((plugin, point, status, seconds))


class Points:
    """Extension points of a profile; a run takes 2 s and returns or raises `result`."""

    name = "Mine"

    def __init__(self, metrics: Any, result: Any = None) -> None:
        self.now_ns = 0
        self.timing = Timing(metrics, "profile", lambda: self.now_ns)
        self.result = result

    def call(self, state: Any) -> Any:
        self.now_ns += 2 * 10**9
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    async def async_call(self, state: Any) -> Any:
        return self.call(state)

    pre_enqueue = call
    run_filter = observed("Filter")(call)
    run_score = observed("Score")(call)
    run_bind = observed_async("Bind")(async_call)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        pytest.param(None, "Success", id="None"),
        pytest.param(unschedulable("P"), "Unschedulable", id="status"),
        pytest.param((Status(Code.WAIT), 5.0), "Wait", id="status in a tuple"),
        pytest.param((None, 0.0), "Success", id="tuple without status"),
        pytest.param(ValueError(), "Error", id="exception"),
    ],
)
async def test_run_is_reported_with_outcome(metrics: Metrics, result: Any, outcome: str) -> None:
    points = Points(metrics, result)
    for run in (points.run_filter, points.run_bind):
        try:
            returned: Any = run(CycleState())
            returned = await returned if run == points.run_bind else returned
            assert returned == result
        except ValueError:
            assert outcome == "Error"
    assert metrics.points == [("Filter", outcome, "profile", 2.0), ("Bind", outcome, "profile", 2.0)]
    assert metrics.plugins == []


def test_runs_are_counted_by_skipped_plugins(metrics: Metrics) -> None:
    points, state = Points(metrics), CycleState()
    state.skip_filter, state.skip_score = {"A"}, {"B"}
    points.run_filter(state)
    points.run_filter(state)
    points.run_score(state)
    assert points.timing.runs == {("Filter", frozenset("A")): 2, ("Score", frozenset("B")): 1}


async def test_plugin_calls_are_reported_in_measured_cycles_only(metrics: Metrics) -> None:
    points: Any = Points(metrics, unschedulable("Mine"))
    for measured in (False, True):
        state = CycleState(measured=measured)
        assert points.timing.plugin("Filter", points, points.call, state) == points.result
        assert await points.timing.async_plugin("Bind", points, points.async_call, state) == points.result
    assert metrics.plugins == [("Mine", "Filter", "Unschedulable", 2.0), ("Mine", "Bind", "Unschedulable", 2.0)]


async def test_no_clock_is_read_without_metrics() -> None:
    points: Any = Points(NO_METRICS, unschedulable("Mine"))
    points.timing.now_ns = None  # a call would raise TypeError
    state = CycleState(measured=True)
    assert points.run_filter(state) == await points.run_bind(state) == points.result
    assert points.timing.plugin("Filter", points, points.call, state) == points.result
    assert await points.timing.async_plugin("Bind", points, points.async_call, state) == points.result
    assert not points.timing.runs


def test_one_pre_enqueue_call_in_ten_is_reported(metrics: Metrics) -> None:
    points: Any = Points(metrics)
    plugin = TimedPreEnqueue(points, points.timing)
    for _ in range(MEASURED_CYCLES + 1):
        plugin.pre_enqueue(None)  # type: ignore[arg-type]
    assert metrics.plugins == [("Mine", "PreEnqueue", "Success", 2.0)] * 2
    assert points.now_ns == 2 * 10**9 * (MEASURED_CYCLES + 1)


@pytest.mark.parametrize("result", [None, unschedulable("P"), ValueError("x")])
async def test_decorated_methods_return_raise_and_report(metrics: Metrics, result: Any) -> None:
    class Decorated(Points):
        score = observed("Score")(Points.call)
        bind = observed_async("Bind")(Points.async_call)

    points, state = Decorated(metrics, result), CycleState()
    returned: list[Any] = []
    for run in (points.score, points.bind):
        try:
            value: Any = run(state)
            returned.append(await value if run == points.bind else value)
        except ValueError as error:
            returned.append(error)
    assert returned == [result, result]
    assert [(point, seconds) for point, _, _, seconds in metrics.points] == [("Score", 2.0), ("Bind", 2.0)]
