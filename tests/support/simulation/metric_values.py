"""Metrics that a controller under test has recorded."""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.process.metrics.metrics_registry import MetricsRegistry, PrometheusFamilies


class RecordedMetrics(PrometheusFamilies):
    """The metrics of a process, for a ControllerContext; `values` reads them."""

    def __init__(self) -> None:
        self._exposed = MetricsRegistry()
        super().__init__(self._exposed)

    def values(self, prefix: str) -> dict[str, float]:
        """Return the samples whose name starts with `prefix`, without it: by name and values of the labels.

        Of a histogram, the number of observations.
        """
        return self._samples(prefix, lambda name: not name.endswith(("_bucket", "_sum")))

    def sums(self, prefix: str) -> dict[str, float]:
        """Return the sums of the histograms whose name starts with `prefix`, as `values` does."""
        return self._samples(prefix, lambda name: name.endswith("_sum"))

    def _samples(self, prefix: str, is_requested: Callable[[str], bool]) -> dict[str, float]:
        return {
            ",".join([sample.name.removeprefix(prefix), *sample.labels.values()]): sample.value
            for family in self._exposed.collect()
            for sample in family.samples
            if sample.name.startswith(prefix) and is_requested(sample.name)
        }
