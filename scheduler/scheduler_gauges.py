"""Metrics that are computed on each scrape. Source: pkg/scheduler/metrics of v1.36."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sized
from itertools import chain

from kubeloop.scheduler.api.extension_points import Plugin
from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue

_POPPED = "PodPopped"


class SchedulerGauges:
    """binding: the bindings in flight, and background work of plugins."""

    def __init__(self, queue: SchedulingQueue, frameworks: Mapping[str, Framework], binding: Sized) -> None:
        self._queue = queue
        self._frameworks = frameworks
        self._binding = binding

    def in_flight_events(self) -> Mapping[str, int]:
        """Return the number of events logged for pods in flight, by event; "PodPopped" for the pods themselves."""
        return Counter(_POPPED if kind == "pod" else name for kind, name in self._queue.in_flight.log())

    def unschedulable_pods(self) -> Mapping[tuple[str, str], int]:
        """Return (plugin, profile) -> number of queued pods that the plugin rejected in their last attempt."""
        return Counter(
            (plugin, queued.pod.spec.scheduler_name)
            for queued in chain.from_iterable(self._queue.pending_pods())
            for plugin in queued.unschedulable_plugins | queued.pending_plugins
        )

    def plugin_evaluations(self) -> Mapping[tuple[str, str, str], int]:
        """Return (plugin, extension point, profile) -> number of attempts in which the plugin ran there."""
        evaluations: Counter[tuple[str, str, str]] = Counter()
        for profile, framework in self._frameworks.items():
            plugins_of: dict[str, tuple[Plugin, ...]] = {
                "PreFilter": tuple(framework.filters.pre_filter),
                "Filter": tuple(framework.filters.filter),
                "PreScore": tuple(framework.scores.pre_score),
                "Score": tuple(scorer.plugin for scorer in framework.scores.scorers),
            }
            for (point, skipped), runs in framework.timing.runs.items():
                for plugin in plugins_of[point]:
                    if plugin.name not in skipped:
                        evaluations[plugin.name, point, profile] += runs
        return evaluations

    def bindings_in_flight(self) -> int:
        return len(self._binding)
