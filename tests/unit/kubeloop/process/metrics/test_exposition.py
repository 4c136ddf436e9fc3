"""Page of all metrics."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from kubeloop.process.metrics.exposition import metrics_page
from kubeloop.process.metrics.metrics_registry import MetricsRegistry, PrometheusCounter, PrometheusHistogram


def filled(histograms: int) -> MetricsRegistry:
    registry = MetricsRegistry()
    PrometheusCounter("c_total", "A counter.", registry=registry).inc()
    histogram = PrometheusHistogram("h_seconds", "A histogram.", ["ns"], buckets=(0.5, 1.0), registry=registry)
    for number in range(histograms):
        histogram.labels(f"ns-{number}").observe(0.7)
    return registry


@pytest.mark.parametrize(
    ("accept", "encode"), [("*/*", generate_latest), ("application/openmetrics-text;version=1.0.0", openmetrics)]
)
async def test_page_equals_that_of_prometheus_client(accept, encode):
    registry = filled(3)
    page, content_type = await metrics_page(registry, accept)
    assert page == encode(registry)
    assert content_type.startswith("text/plain" if encode is generate_latest else "application/openmetrics-text")


async def test_other_tasks_run_while_a_large_page_is_formatted():
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await metrics_page(filled(2000), "*/*")
    task.cancel()
    assert turns >= 19
