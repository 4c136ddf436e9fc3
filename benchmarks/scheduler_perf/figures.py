"""Figures of a workload: throughput sampled each second, latencies from histograms, CPU and memory of the process."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

_TICKS = os.sysconf("SC_CLK_TCK")

COLLECTED_METRICS = (
    "scheduler_framework_extension_point_duration_seconds",
    "scheduler_scheduling_attempt_duration_seconds",
    "scheduler_pod_scheduling_sli_duration_seconds",
    "scheduler_plugin_execution_duration_seconds",
    "scheduler_queueing_hint_execution_duration_seconds",
    "scheduler_event_handling_duration_seconds",
)
"""Default histograms of a test case. Source: defaultMetricsCollectorConfig."""

LOOP_LAG = "kubeloop_event_loop_lag_seconds"
WORST_LOOP_LAG = "kubeloop_event_loop_lag_worst_seconds"
ATTEMPTS = "scheduler_scheduling_attempt_duration_seconds"
_ITEM_LABELS = {"extension_point", "result", "plugin", "event"}


def cpu_seconds(pid: int) -> float:
    """Return the user and system CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_memory_mib(pid: int) -> float:
    """Return the peak resident memory of a process."""
    return memory_mib(pid, "VmHWM")


def memory_mib(pid: int, field: str) -> float:
    """Return a size of /proc/PID/status, such as VmRSS, the resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def summary(values: Iterable[float]) -> dict[str, float]:
    """Return average and percentiles by nearest rank, as scheduler_perf's throughputCollector; {} without values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    percentiles = {f"Perc{percent}": nearest_rank(ordered, percent) for percent in (50, 90, 95, 99)}
    return {"Average": sum(ordered) / len(ordered), **percentiles}


class Throughput:
    """Pods bound per second, one sample a second.

    The first sample with a pod only sets the start; a sample after seconds without bound pods is spread over them, so
    that percentiles are correct. Source: throughputCollector in scheduler_perf/util.go.
    """

    def __init__(self, namespaces: Iterable[str], label_selector: Mapping[str, str]) -> None:
        self._namespaces = frozenset(namespaces)
        self._labels = dict(label_selector)
        self.samples: list[float] = []
        self.bound = 0
        self.last_bound_at = 0.0
        self._sampled = 0
        self._sampled_at: float | None = None
        self._skipped = 0

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return namespace in self._namespaces and all(labels.get(key) == value for key, value in self._labels.items())

    def pod_bound(self, now: float) -> None:
        self.bound += 1
        self.last_bound_at = now

    def sample(self, now: float) -> None:
        """Take a sample; to be called each second. `now`: seconds of a monotonic clock."""
        if self.bound == 0:
            return
        if self._sampled_at is None:
            self._sampled_at, self._sampled = now, self.bound
            return
        if self.bound == self._sampled:
            self._skipped += 1
            return
        rate = (self.bound - self._sampled) / (now - self._sampled_at)
        self.samples += [rate] * (self._skipped + 1)
        self._sampled_at, self._sampled, self._skipped = now, self.bound, 0

    @property
    def unsampled(self) -> int:
        return self.bound - self._sampled

    async def run(self) -> None:
        """Sample until cancelled."""
        loop = asyncio.get_running_loop()
        tick = loop.time()
        while True:
            tick += 1.0
            await asyncio.sleep(max(0.0, tick - loop.time()))
            self.sample(loop.time())

    async def settle(self) -> None:
        """Wait for the sample that includes the last pods."""
        before = self.unsampled
        while before and self.unsampled == before:
            await asyncio.sleep(0.02)


@dataclass(frozen=True)
class Distribution:
    """A histogram, or the difference of two. `buckets`: (upper bound, cumulative count), ascending."""

    buckets: tuple[tuple[float, float], ...]
    total: float

    @property
    def count(self) -> float:
        return self.buckets[-1][1] if self.buckets else 0.0

    def since(self, before: Distribution | None) -> Distribution:
        if before is None or not before.buckets:
            return self
        earlier = dict(before.buckets)
        buckets = tuple((bound, count - earlier.get(bound, 0.0)) for bound, count in self.buckets)
        return Distribution(buckets, self.total - before.total)

    def quantile(self, share: float) -> float:
        """Interpolate linearly within the bucket, as Prometheus' histogram_quantile; at most the last finite bound."""
        rank, below, lower = share * self.count, 0.0, 0.0
        for bound, count in self.buckets:
            if count >= rank:
                if math.isinf(bound) or count == below:
                    return lower
                return lower + (bound - lower) * (rank - below) / (count - below)
            below, lower = count, bound
        return lower

    def milliseconds(self) -> dict[str, float]:
        if not self.count:
            return {}
        percentiles = {f"Perc{percent}": self.quantile(percent / 100) * 1000 for percent in (50, 90, 95, 99)}
        return {"Average": self.total / self.count * 1000, **percentiles}


Labels = tuple[tuple[str, str], ...]


@dataclass
class Metrics:
    """Parsed /metrics: distributions by (name, labels), other samples by name."""

    distributions: dict[tuple[str, Labels], Distribution] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Metrics:
        """Parse a metrics page; sum over labels that are not needed here (profile, status)."""
        buckets: dict[tuple[str, Labels], dict[float, float]] = {}
        totals: dict[tuple[str, Labels], float] = {}
        metrics = cls()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if family.type != "histogram":
                    metrics.sums[sample.name] = metrics.sums.get(sample.name, 0.0) + sample.value
                    continue
                labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name in _ITEM_LABELS))
                key = family.name, labels
                if sample.name.endswith("_bucket"):
                    bounds = buckets.setdefault(key, {})
                    bound = float(sample.labels["le"])
                    bounds[bound] = bounds.get(bound, 0.0) + sample.value
                elif sample.name.endswith("_sum"):
                    totals[key] = totals.get(key, 0.0) + sample.value
        for key, bounds in buckets.items():
            metrics.distributions[key] = Distribution(tuple(sorted(bounds.items())), totals.get(key, 0.0))
        return metrics

    def since(self, before: Metrics) -> dict[tuple[str, Labels], Distribution]:
        """Return the differences of all distributions that grew."""
        grown = {
            key: distribution.since(before.distributions.get(key)) for key, distribution in self.distributions.items()
        }
        return {key: distribution for key, distribution in grown.items() if distribution.count > 0}


@dataclass
class Measurement:
    """A measurement from start to stop. `cpu_seconds` is that of kubeloop.

    worst_loop_lag_seconds: since the start of kubeloop, including the filling of its caches.
    """

    name: str
    pods: int
    seconds: float
    cpu_seconds: float
    peak_memory_mib: float
    worst_loop_lag_seconds: float
    throughput: dict[str, float]
    distributions: dict[tuple[str, Labels], Distribution]

    @property
    def pods_per_second(self) -> float:
        """Return the rate from the first request to the last bound pod, independent of samples."""
        return self.pods / self.seconds if self.seconds > 0 else 0.0

    @property
    def cpu_milliseconds_per_pod(self) -> float:
        return self.cpu_seconds / self.pods * 1000 if self.pods else 0.0

    def attempts(self, result: str) -> Distribution | None:
        return self.distributions.get((ATTEMPTS, (("result", result),)))

    def data_items(self, metrics: Sequence[str] = COLLECTED_METRICS) -> list[dict[str, Any]]:
        """Return scheduler_perf's items for perf-dash; "SchedulingThroughput" has no data without samples."""
        items: list[dict[str, Any]] = [
            {
                "data": self.throughput,
                "unit": "pods/s",
                "labels": {"Name": self.name, "Metric": "SchedulingThroughput"},
            },
            {
                "data": {"Duration": self.seconds},
                "unit": "s",
                "labels": {"Name": self.name, "Metric": "SchedulingDuration"},
            },
        ]
        for (metric, labels), distribution in sorted(self.distributions.items()):
            if metric in metrics:
                data = distribution.milliseconds()
                items.append(
                    {"data": data, "unit": "ms", "labels": {"Name": self.name, "Metric": metric, **dict(labels)}}
                )
        return items


def below_threshold(items: Sequence[Mapping[str, Any]], threshold: float, selector: Any) -> str | None:
    """Return the violation of a threshold (0: none), or None. `selector` is a ThresholdMetricSelector."""
    if threshold == 0:
        return None
    for item in items:
        labels = item["labels"]
        if labels["Metric"] != selector.name or any(labels.get(key) != value for key, value in selector.labels.items()):
            continue
        value = item["data"].get(selector.data_bucket)
        if value is None:
            continue
        if value > threshold if selector.expect_lower else value < threshold:
            bound = "at most" if selector.expect_lower else "at least"
            return f"{selector.name} {selector.data_bucket} is {value:.1f}, expected {bound} {threshold:g}"
    return None
