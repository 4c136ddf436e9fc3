"""The context that controllers share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from kubeloop.controllers.runtime.controller_context import ControllerContext
from support.simulation.metric_values import RecordedMetrics
from support.simulation.set_clock import SetClock


async def test_queue_counts_in_metrics_and_measures_with_the_clock():
    clock, metrics, unused = SetClock(datetime(2026, 1, 1, tzinfo=UTC)), RecordedMetrics(), cast("Any", None)
    context = ControllerContext(
        client=unused, informers=unused, clock=clock, traces=unused, pod_traces=unused, events=unused, metrics=metrics
    )
    queue = context.new_queue("deployment")
    queue.add("ns/web")
    await queue.get()
    clock.moment = datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)
    assert queue.unfinished_work_seconds() == 7.0
    assert metrics.values("workqueue_adds_total") == {",deployment": 1}
