"""PrioritySort: order of the active queue."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.priority_sort import PrioritySort


def test_higher_priority_then_longer_wait(plugin_cluster: Any, pod: Any) -> None:
    plugin = PrioritySort(plugin_args.NoArgs(), plugin_cluster())
    queued: list[Any] = [
        SimpleNamespace(pod=pod(name, priority=priority), timestamp_ns=timestamp)
        for name, priority, timestamp in (("late", 1, 20), ("early", 1, 10), ("high", 5, 30), ("default", None, 5))
    ]
    assert [entry.pod.metadata.name for entry in sorted(queued, key=plugin.sort_key)] == [
        "high",
        "early",
        "late",
        "default",
    ]
