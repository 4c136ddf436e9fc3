"""Counters, gauges and histograms for one event loop, collected as prometheus_client's metric families at each scrape.

prometheus_client's own classes lock at each observation (2 us; a pod causes forty observations), and the library takes
25 ms to import. Here an observation takes a quarter of that, and the library is imported at the first scrape. Names,
labels and documentation are passed as to prometheus_client's classes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kubeloop.kube.metric_families import MetricFamilies

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from kubeloop.process.metrics.histogram_families import HistogramFamily

S = TypeVar("S")
F = TypeVar("F")


class Collector(Protocol):
    def collect(self) -> Iterable[Metric | HistogramFamily]:
        """Return the current metric families; they do not change afterwards."""
        ...


class Registerer(Protocol):
    """Interface to register a collector: Registry, or prometheus_client's CollectorRegistry."""

    def register(self, collector: Any) -> None: ...


class MetricsRegistry:
    """All collectors of a process. prometheus_client's encoders accept it in place of a CollectorRegistry."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        self._collectors.append(collector)

    def collect(self) -> Iterator[Metric | HistogramFamily]:
        for collector in self._collectors:
            yield from collector.collect()


class LabeledCounter:
    """A counter with one set of label values."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount


class LabeledGauge:
    """A gauge with one set of label values."""

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
        """Compute the value at each scrape."""
        self._read = read


class LabeledHistogram:
    """A histogram with one set of label values."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds  # upper bounds, without infinity
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class _Family(Generic[S]):
    """Metrics by label values; without labels there is one metric, created at once. registry None: not exposed."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        *,
        registry: Registerer | None,
        create: Callable[[], S],
    ) -> None:
        self._name, self._documentation, self._labels, self._create = name, documentation, tuple(labels), create
        self._metrics: dict[tuple[str, ...], S] = {}
        if not labels:
            self._metrics[()] = create()
        if registry is not None:
            registry.register(self)

    def labels(self, *values: str) -> S:
        """Return the metric with these label values, in the order of the labels."""
        metric = self._metrics.get(values)
        if metric is None:
            if len(values) != len(self._labels):
                raise ValueError(f"{self._name} has the labels {self._labels}, not {values}")
            metric = self._metrics[values] = self._create()
        return metric


class PrometheusCounter(_Family[LabeledCounter]):
    """A counter family. One whose name does not end in _total is untyped: prometheus_client would append that."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str] = (), *, registry: Registerer | None
    ) -> None:
        super().__init__(name, documentation, labels, registry=registry, create=LabeledCounter)

    def inc(self, amount: float = 1.0) -> None:
        self._metrics[()].inc(amount)

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, UnknownMetricFamily

        family_type = CounterMetricFamily if self._name.endswith("_total") else UnknownMetricFamily
        family = family_type(self._name, self._documentation, labels=self._labels)
        for values, metric in self._metrics.items():
            family.add_metric(values, metric.value)
        yield family


class PrometheusGauge(_Family[LabeledGauge]):
    def __init__(
        self, name: str, documentation: str, labels: Sequence[str] = (), *, registry: Registerer | None
    ) -> None:
        super().__init__(name, documentation, labels, registry=registry, create=LabeledGauge)

    def set(self, value: float) -> None:
        self._metrics[()].set(value)

    def set_function(self, read: Callable[[], float]) -> None:
        self._metrics[()].set_function(read)

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import GaugeMetricFamily

        family = GaugeMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, metric in self._metrics.items():
            family.add_metric(values, metric.value)
        yield family


class PrometheusHistogram(_Family[LabeledHistogram]):
    """A histogram family. buckets: upper bounds, ascending, without infinity."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float],
        registry: Registerer | None,
    ) -> None:
        bounds = tuple(map(float, buckets))
        super().__init__(name, documentation, labels, registry=registry, create=lambda: LabeledHistogram(bounds))
        self._bounds = bounds

    def observe(self, value: float) -> None:
        self._metrics[()].observe(value)

    def collect(self) -> Iterable[HistogramFamily]:
        from kubeloop.process.metrics.histogram_families import HistogramCopy, HistogramFamily

        copies = [HistogramCopy(values, [*metric.counts], metric.sum) for values, metric in self._metrics.items()]
        yield HistogramFamily(self._name, self._documentation, self._labels, self._bounds, copies)


class PrometheusFamilies(MetricFamilies):
    """Creates metrics that a registry exposes."""

    def __init__(self, registry: Registerer) -> None:
        self._registry = registry
        self._families: dict[str, Any] = {}

    def counter(self, name: str, documentation: str, labels: Sequence[str] = ()) -> PrometheusCounter:
        return self._family(name, lambda: PrometheusCounter(name, documentation, labels, registry=self._registry))

    def gauge(self, name: str, documentation: str, labels: Sequence[str] = ()) -> PrometheusGauge:
        return self._family(name, lambda: PrometheusGauge(name, documentation, labels, registry=self._registry))

    def histogram(
        self, name: str, documentation: str, labels: Sequence[str] = (), *, buckets: Sequence[float]
    ) -> PrometheusHistogram:
        return self._family(
            name, lambda: PrometheusHistogram(name, documentation, labels, buckets=buckets, registry=self._registry)
        )

    def _family(self, name: str, create: Callable[[], F]) -> F:
        if name not in self._families:
            self._families[name] = create()
        family: F = self._families[name]
        return family
