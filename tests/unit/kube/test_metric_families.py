"""Metrics that are not recorded."""

import pytest

from kubeloop.kube.metric_families import NO_FAMILIES


@pytest.mark.parametrize("kind", ["counter", "gauge", "histogram"])
def test_metrics_that_are_not_recorded_accept_any_labels(kind: str):
    options = {"buckets": [1.0]} if kind == "histogram" else {}
    metric = getattr(NO_FAMILIES, kind)("name", "documentation", ("zone",), **options).labels("a")
    {"counter": metric.inc, "gauge": metric.set, "histogram": metric.observe}[kind](1.0)
    assert metric.labels("b") is metric
