"""process_* metrics and kubeloop_build_info."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kubeloop import KUBERNETES_VERSION, __version__
from kubeloop.process.metrics.metrics_registry import MetricsRegistry, PrometheusGauge

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def new_registry() -> MetricsRegistry:
    """Return a registry with process_* and kubeloop_build_info."""
    registry = MetricsRegistry()
    registry.register(_ProcessMetrics())
    build = PrometheusGauge("kubeloop_build_info", "Version of kubeloop.", ["version", "kubernetes"], registry=registry)
    build.labels(__version__, KUBERNETES_VERSION).set(1)
    return registry


class _ProcessMetrics:
    """process_* metrics: memory, CPU, file descriptors."""

    def collect(self) -> Iterable[Metric]:
        from prometheus_client import ProcessCollector

        return ProcessCollector(registry=None).collect()
