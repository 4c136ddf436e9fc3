"""Durations of extension points and plugins, for the metrics.

Each run of an extension point is reported; plugin calls only in one cycle of ten (`CycleState.measured`). Nothing is
timed for metrics that ignore them (`SchedulerMetrics.times_extension_points`).
Source: metrics.FrameworkExtensionPointDuration and PluginExecutionDuration in pkg/scheduler of v1.36.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import Plugin, PreEnqueuePlugin
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.metrics import SchedulerMetrics

MEASURED_CYCLES = 10  # one of this many cycles is measured plugin by plugin

P = ParamSpec("P")
R = TypeVar("R")
State = TypeVar("State", bound=CycleState)


class Timing:
    """Durations of one profile. now_ns: the clock."""

    def __init__(self, metrics: SchedulerMetrics, profile_name: str, now_ns: Callable[[], int]) -> None:
        self._metrics = metrics
        self.is_enabled = metrics.times_extension_points
        self.now_ns = now_ns
        self._profile_name = profile_name
        # (extension point, plugins that skipped the pod) -> attempts; from this the evaluations per plugin follow
        self.runs: Counter[tuple[str, frozenset[str]]] = Counter()

    def ran(self, point: str, state: CycleState) -> None:
        """Count an attempt that reached `point`, one of those at which plugins may skip a pod."""
        skipped = state.skip_filter if point in ("PreFilter", "Filter") else state.skip_score
        self.runs[point, frozenset(skipped)] += 1

    def point(self, point: str, outcome: str, start_ns: int) -> None:
        self._metrics.extension_point(point, outcome, self._profile_name, (self.now_ns() - start_ns) / 1e9)

    def plugin(
        self,
        point: str,
        plugin: Plugin,
        call: Callable[Concatenate[State, P], R],
        state: State,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Call a plugin and return its result; the duration is reported in a measured cycle."""
        if not state.measured or not self.is_enabled:
            return call(state, *args, **kwargs)
        start_ns, outcome = self.now_ns(), "Error"
        try:
            result = call(state, *args, **kwargs)
            outcome = _outcome(result)
            return result
        finally:
            self._report(point, plugin, outcome, start_ns)

    async def async_plugin(
        self,
        point: str,
        plugin: Plugin,
        call: Callable[Concatenate[CycleState, P], Awaitable[R]],
        state: CycleState,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Await a plugin's coroutine and return its result; otherwise like plugin()."""
        if not state.measured or not self.is_enabled:
            return await call(state, *args, **kwargs)
        start_ns, outcome = self.now_ns(), "Error"
        try:
            result = await call(state, *args, **kwargs)
            outcome = _outcome(result)
            return result
        finally:
            self._report(point, plugin, outcome, start_ns)

    def _report(self, point: str, plugin: Plugin, outcome: str, start_ns: int) -> None:
        self._metrics.plugin(plugin.name, point, outcome, (self.now_ns() - start_ns) / 1e9)


class TimedPreEnqueue:
    """A PreEnqueue plugin; one call in ten is reported, as the calls are not part of a cycle."""

    def __init__(self, plugin: PreEnqueuePlugin, timing: Timing) -> None:
        self.name = plugin.name
        self._plugin = plugin
        self._timing = timing
        self._calls = 0

    def pre_enqueue(self, pod: Pod) -> Status | None:
        self._calls += 1
        if self._calls % MEASURED_CYCLES != 1:
            return self._plugin.pre_enqueue(pod)
        state = CycleState(measured=True)
        return self._timing.plugin("PreEnqueue", self._plugin, lambda _: self._plugin.pre_enqueue(pod), state)


def _outcome(result: Any) -> str:
    """Return the status in a plugin's result, alone or in a tuple, by name; "Success" for anything else."""
    if result is None:  # mostly
        return "Success"
    if isinstance(result, tuple):
        result = next((part for part in result if isinstance(part, Status)), None)
    return result.code.api_name if isinstance(result, Status) else "Success"


class HasTiming(Protocol):
    @property
    def timing(self) -> Timing: ...


T = TypeVar("T", bound=HasTiming)


_EVALUATED = ("PreFilter", "Filter", "PreScore", "Score")


def observed(point: str) -> Callable[[Callable[Concatenate[T, P], R]], Callable[Concatenate[T, P], R]]:
    """Report each call of the method as a run of the extension point, with status Error if it raises.

    The call is neither timed nor counted if the metrics ignore extension points.
    """

    evaluated = point in _EVALUATED

    def decorate(run: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
        @functools.wraps(run)
        def timed(self: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
            timing = self.timing
            if not timing.is_enabled:
                return run(self, *args, **kwargs)
            start_ns, outcome = timing.now_ns(), "Error"
            try:
                result = run(self, *args, **kwargs)
                outcome = _outcome(result)
                return result
            finally:
                timing.point(point, outcome, start_ns)
                if evaluated and isinstance(args[0], CycleState):
                    timing.ran(point, args[0])

        return timed

    return decorate


def observed_async(
    point: str,
) -> Callable[[Callable[Concatenate[T, P], Awaitable[R]]], Callable[Concatenate[T, P], Awaitable[R]]]:
    """Report like observed(), for coroutine methods."""

    def decorate(run: Callable[Concatenate[T, P], Awaitable[R]]) -> Callable[Concatenate[T, P], Awaitable[R]]:
        @functools.wraps(run)
        async def timed(self: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
            timing = self.timing
            if not timing.is_enabled:
                return await run(self, *args, **kwargs)
            start_ns, outcome = timing.now_ns(), "Error"
            try:
                result = await run(self, *args, **kwargs)
                outcome = _outcome(result)
                return result
            finally:
                timing.point(point, outcome, start_ns)

        return timed

    return decorate
