"""Counters, gauges and histograms for one event loop, collected as prometheus_client's families when somebody scrapes.

prometheus_client's own lock each observation (2 us, of which a pod causes forty), and it takes 25 ms to import: here an
observation is a quarter of that, and the library is imported at the first scrape. Names, labels and documentation are
given as to prometheus_client's classes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

S = TypeVar("S")


class Collector(Protocol):
    def collect(self) -> Iterable[Metric]:
        """Its families, as they are now."""
        ...


class Registration(Protocol):
    """What a collector registers with: Registry, or prometheus_client's CollectorRegistry."""

    def register(self, collector: Any) -> None: ...


class Registry:
    """All collectors of a process. prometheus_client's encoders take it in place of a CollectorRegistry."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        self._collectors.append(collector)

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            yield from collector.collect()


class CounterSeries:
    """One series of a counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount


class GaugeSeries:
    """One series of a gauge."""

    __slots__ = ("_read", "_value")

    def __init__(self) -> None:
        self._value = 0.0
        self._read: Callable[[], float] | None = None

    @property
    def value(self) -> float:
        return self._value if self._read is None else float(self._read())

    def set(self, value: float) -> None:
        self._value = value

    def set_function(self, read: Callable[[], float]) -> None:
        """Read the value when somebody scrapes."""
        self._read = read


class HistogramSeries:
    """One series of a histogram."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds  # upper, without infinity
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class _Family(Generic[S]):
    """Series by the values of their labels; without labels there is one, from the start."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str] = (), *, registry: Registration, new: Callable[[], S]
    ) -> None:
        self._name, self._documentation, self._labels, self._new = name, documentation, tuple(labels), new
        self._series: dict[tuple[str, ...], S] = {}
        if not labels:
            self._series[()] = new()
        registry.register(self)

    def labels(self, *values: str) -> S:
        """The series with these values, in the order of the labels."""
        series = self._series.get(values)
        if series is None:
            if len(values) != len(self._labels):
                raise ValueError(f"{self._name} has the labels {self._labels}, not {values}")
            series = self._series[values] = self._new()
        return series


class Counter(_Family[CounterSeries]):
    """Its name ends in _total."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = (), *, registry: Registration) -> None:
        super().__init__(name, documentation, labels, registry=registry, new=CounterSeries)

    def inc(self, amount: float = 1.0) -> None:
        self._series[()].inc(amount)

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily

        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, series in self._series.items():
            family.add_metric(values, series.value)
        yield family


class Gauge(_Family[GaugeSeries]):
    def __init__(self, name: str, documentation: str, labels: Sequence[str] = (), *, registry: Registration) -> None:
        super().__init__(name, documentation, labels, registry=registry, new=GaugeSeries)

    def set(self, value: float) -> None:
        self._series[()].set(value)

    def set_function(self, read: Callable[[], float]) -> None:
        self._series[()].set_function(read)

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import GaugeMetricFamily

        family = GaugeMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, series in self._series.items():
            family.add_metric(values, series.value)
        yield family


class Histogram(_Family[HistogramSeries]):
    """buckets: upper bounds, ascending, without infinity."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float],
        registry: Registration,
    ) -> None:
        bounds = tuple(map(float, buckets))
        super().__init__(name, documentation, labels, registry=registry, new=lambda: HistogramSeries(bounds))
        self._bounds = bounds

    def observe(self, value: float) -> None:
        self._series[()].observe(value)

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import HistogramMetricFamily
        from prometheus_client.utils import floatToGoString

        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        bounds = [floatToGoString(bound) for bound in (*self._bounds, math.inf)]  # type: ignore[no-untyped-call]
        for values, series in self._series.items():
            total, cumulative = 0, []
            for bound, count in zip(bounds, series.counts, strict=True):
                total += count
                cumulative.append((bound, total))
            family.add_metric(values, cumulative, series.sum)
        yield family
