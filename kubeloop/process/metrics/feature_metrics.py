"""kubernetes_feature_enabled: stage and value of every feature gate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kubeloop.kube.feature_gates import FeatureGates

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class FeatureGateCollector:
    """kubernetes_feature_enabled{name,stage}: 1 for an enabled gate, else 0."""

    def __init__(self, gates: FeatureGates) -> None:
        self._gates = gates

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import GaugeMetricFamily

        family = GaugeMetricFamily(
            "kubernetes_feature_enabled",
            "This metric records the data about the stage and enablement of a k8s feature.",
            labels=["name", "stage"],
        )
        for name, stage, enabled in self._gates.all():
            family.add_metric([name, stage], float(enabled))
        return (family,)
