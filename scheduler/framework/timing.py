"""How long extension points and plugins take, for the metrics.

Every run of an extension point is reported; of the plugins' calls those of one cycle in ten, as `CycleState.measured`
says. Source: metrics.FrameworkExtensionPointDuration and PluginExecutionDuration in pkg/scheduler of v1.36.
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
from kubeloop.scheduler.metrics_protocol import SchedulerMetrics

MEASURED = 10  # of so many cycles one is measured plugin by plugin

P = ParamSpec("P")
R = TypeVar("R")


class Timing:
    """now_ns: the clock that durations are read from."""

    def __init__(self, metrics: SchedulerMetrics | None, profile_name: str, now_ns: Callable[[], int]) -> None:
        self.metrics = metrics
        self.now_ns = now_ns
        self._profile_name = profile_name
        # (extension point, plugins that skipped the pod) -> attempts; which plugins were heard follows from that
        self.runs: Counter[tuple[str, frozenset[str]]] = Counter()

    def ran(self, point: str, state: CycleState) -> None:
        """An attempt got as far as `point`, one of those at which plugins may skip a pod."""
        skipped = state.skip_filter if point in ("PreFilter", "Filter") else state.skip_score
        self.runs[point, frozenset(skipped)] += 1

    def point(self, point: str, outcome: str, start_ns: int) -> None:
        if self.metrics is not None:
            self.metrics.extension_point(point, outcome, self._profile_name, (self.now_ns() - start_ns) / 1e9)

    def plugin(
        self,
        point: str,
        plugin: Plugin,
        call: Callable[Concatenate[CycleState, P], R],
        state: CycleState,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """The answer of `call`, whose duration is reported in a measured cycle."""
        if not state.measured:
            return call(state, *args, **kwargs)
        start_ns, outcome = self.now_ns(), "Error"
        try:
            answer = call(state, *args, **kwargs)
            outcome = _outcome(answer)
            return answer
        finally:
            self._report(point, plugin, outcome, start_ns)

    async def awaited_plugin(
        self,
        point: str,
        plugin: Plugin,
        call: Callable[Concatenate[CycleState, P], Awaitable[R]],
        state: CycleState,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """As plugin(), for those that wait."""
        if not state.measured:
            return await call(state, *args, **kwargs)
        start_ns, outcome = self.now_ns(), "Error"
        try:
            answer = await call(state, *args, **kwargs)
            outcome = _outcome(answer)
            return answer
        finally:
            self._report(point, plugin, outcome, start_ns)

    def _report(self, point: str, plugin: Plugin, outcome: str, start_ns: int) -> None:
        if self.metrics is not None:
            self.metrics.plugin(plugin.name, point, outcome, (self.now_ns() - start_ns) / 1e9)


class TimedPreEnqueue:
    """A PreEnqueue plugin, of whose calls one in ten is reported: they belong to no cycle."""

    def __init__(self, plugin: PreEnqueuePlugin, timing: Timing) -> None:
        self.name = plugin.name
        self._plugin = plugin
        self._timing = timing
        self._calls = 0

    def pre_enqueue(self, pod: Pod) -> Status | None:
        self._calls += 1
        if self._calls % MEASURED != 1:
            return self._plugin.pre_enqueue(pod)
        state = CycleState(measured=True)
        return self._timing.plugin("PreEnqueue", self._plugin, lambda _: self._plugin.pre_enqueue(pod), state)


def _outcome(answer: Any) -> str:
    """By the status in what a plugin answered, on its own or in a tuple; anything else is a success."""
    if isinstance(answer, tuple):
        answer = next((each for each in answer if isinstance(each, Status)), None)
    return answer.code.api_name if isinstance(answer, Status) else "Success"


class Timed(Protocol):
    @property
    def timing(self) -> Timing: ...


T = TypeVar("T", bound=Timed)


_EVALUATED = ("PreFilter", "Filter", "PreScore", "Score")


def observed(point: str) -> Callable[[Callable[Concatenate[T, P], R]], Callable[Concatenate[T, P], R]]:
    """Report each call of the method as a run of the extension point; what raises is an error."""

    evaluated = point in _EVALUATED

    def decorate(run: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
        @functools.wraps(run)
        def timed(self: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
            if self.timing.metrics is None:
                return run(self, *args, **kwargs)
            start_ns, outcome = self.timing.now_ns(), "Error"
            try:
                answer = run(self, *args, **kwargs)
                outcome = _outcome(answer)
                return answer
            finally:
                self.timing.point(point, outcome, start_ns)
                if evaluated and isinstance(args[0], CycleState):
                    self.timing.ran(point, args[0])

        return timed

    return decorate


def awaited_observed(
    point: str,
) -> Callable[[Callable[Concatenate[T, P], Awaitable[R]]], Callable[Concatenate[T, P], Awaitable[R]]]:
    """As observed(), for methods that wait."""

    def decorate(run: Callable[Concatenate[T, P], Awaitable[R]]) -> Callable[Concatenate[T, P], Awaitable[R]]:
        @functools.wraps(run)
        async def timed(self: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
            if self.timing.metrics is None:
                return await run(self, *args, **kwargs)
            start_ns, outcome = self.timing.now_ns(), "Error"
            try:
                answer = await run(self, *args, **kwargs)
                outcome = _outcome(answer)
                return answer
            finally:
                self.timing.point(point, outcome, start_ns)

        return timed

    return decorate
