"""Metrics that are not recorded."""

from __future__ import annotations

import pytest

from kubeloop.controllers.runtime.metrics_interface import NoMetricFamilies


@pytest.mark.parametrize("kind", ["counter", "gauge", "histogram"])
def test_metrics_that_are_not_recorded_accept_any_labels(kind: str):
    options = {"buckets": [1.0]} if kind == "histogram" else {}
    metric = getattr(NoMetricFamilies(), kind)("name", "documentation", ("zone",), **options).labels("a")
    {"counter": metric.inc, "gauge": metric.set, "histogram": metric.observe}[kind](1.0)
    assert metric.labels("b") is metric
