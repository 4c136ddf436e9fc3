"""Metrics that a controller under test has recorded."""

from __future__ import annotations

from kubeloop.process.metrics.controller_metrics import PrometheusControllerMetrics
from kubeloop.process.metrics.metrics_registry import MetricsRegistry


class RecordedMetrics(PrometheusControllerMetrics):
    """The metrics of a process, for a ControllerContext; `values` reads them."""

    def __init__(self) -> None:
        self._exposed = MetricsRegistry()
        super().__init__(self._exposed)

    def values(self, prefix: str) -> dict[str, float]:
        """Return the samples whose name starts with `prefix`, without it: by name and values of the labels.

        Of a histogram, the number of observations.
        """
        return {
            ",".join([sample.name.removeprefix(prefix), *sample.labels.values()]): sample.value
            for family in self._exposed.collect()
            for sample in family.samples
            if sample.name.startswith(prefix) and not sample.name.endswith(("_bucket", "_sum"))
        }
