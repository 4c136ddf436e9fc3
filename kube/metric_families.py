"""Interface to declare metrics; `kubeloop.process.metrics` implements it. May import the standard library only.

Whoever reports a metric declares it, with the name that it has in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Family(Protocol[T_co]):
    """A metric with labels."""

    def labels(self, *values: str) -> T_co:
        """Return the metric with these label values, in the order of the labels."""
        ...


class CounterMetric(Protocol):
    def inc(self, amount: float = 1.0) -> None: ...


class GaugeMetric(Protocol):
    def set(self, value: float) -> None: ...

    def set_function(self, read: Callable[[], float]) -> None:
        """Compute the value at each scrape."""


class HistogramMetric(Protocol):
    def observe(self, value: float) -> None: ...


class NoMetric:
    """A metric that records nothing, with any labels."""

    def labels(self, *_values: str) -> Self:
        return self

    def inc(self, amount: float = 1.0) -> None: ...

    def set(self, value: float) -> None: ...

    def set_function(self, read: Callable[[], float]) -> None: ...

    def observe(self, value: float) -> None: ...


class MetricFamilies:
    """Creates metrics. The same name returns the same family, so that two callers may share it.

    This base class records nothing.
    """

    def counter(self, _name: str, _documentation: str, _labels: Sequence[str] = ()) -> Family[CounterMetric]:
        return NoMetric()

    def gauge(self, _name: str, _documentation: str, _labels: Sequence[str] = ()) -> Family[GaugeMetric]:
        return NoMetric()

    def histogram(
        self, _name: str, _documentation: str, _labels: Sequence[str] = (), *, buckets: Sequence[float]
    ) -> Family[HistogramMetric]:
        del buckets
        return NoMetric()


NO_FAMILIES = MetricFamilies()
