"""Metrics that are not recorded."""

from __future__ import annotations

import pytest

from kubeloop.controllers.runtime.metrics_interface import NO_CONTROLLER_METRICS
from kubeloop.controllers.runtime.queue.work_queue import WorkQueue


@pytest.mark.parametrize("kind", ["counter", "gauge", "histogram"])
def test_metrics_that_are_not_recorded_accept_any_labels(kind: str):
    options = {"buckets": [1.0]} if kind == "histogram" else {}
    metric = getattr(NO_CONTROLLER_METRICS, kind)("name", "documentation", ("zone",), **options).labels("a")
    {"counter": metric.inc, "gauge": metric.set, "histogram": metric.observe}[kind](1.0)
    assert metric.labels("b") is metric


async def test_queue_without_recorded_metrics_hands_out_keys():
    queue = WorkQueue("deployment", metrics=NO_CONTROLLER_METRICS.queue("deployment"))
    queue.add("ns/web")
    queue.add_after("ns/api", 0.0)
    assert [await queue.get(), await queue.get()] == ["ns/web", "ns/api"]
    queue.done("ns/web")
    assert queue.unfinished_work_seconds() >= 0.0
