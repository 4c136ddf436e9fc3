"""process_* metrics, kubeloop_build_info, and the resource of the process for OpenTelemetry."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kubeloop import KUBERNETES_VERSION, __version__
from kubeloop.process.metrics.metrics_registry import MetricsRegistry, PrometheusGauge

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def new_registry() -> MetricsRegistry:
    """Return a registry with process_*, target_info and kubeloop_build_info."""
    registry = MetricsRegistry()
    registry.register(_ProcessMetrics())
    registry.register(_TargetInfo())
    build = PrometheusGauge("kubeloop_build_info", "Version of kubeloop.", ["version", "kubernetes"], registry=registry)
    build.labels(__version__, KUBERNETES_VERSION).set(1)
    return registry


class _ProcessMetrics:
    """process_* metrics: memory, CPU, file descriptors."""

    def collect(self) -> Iterable[Metric]:
        from prometheus_client import ProcessCollector

        return ProcessCollector(registry=None).collect()


class _TargetInfo:
    """target_info: attributes of the OpenTelemetry resource (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES), as labels.

    A collector adds them to all metrics of the process. Source: OpenTelemetry's "Prometheus and OpenMetrics
    Compatibility".
    """

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import GaugeMetricFamily

        if not self._labels:
            from kubeloop.tracing.export.resource import resource_attributes

            attributes = resource_attributes()
            self._labels = {re.sub(r"\W", "_", name, flags=re.ASCII): str(value) for name, value in attributes.items()}
        family = GaugeMetricFamily("target_info", "Target metadata", labels=[*self._labels])
        family.add_metric([*self._labels.values()], 1)
        yield family
