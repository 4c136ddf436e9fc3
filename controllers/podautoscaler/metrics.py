"""horizontal_pod_autoscaler_controller_* metrics. Source: v1.36 pkg/controller/podautoscaler/monitor."""

from __future__ import annotations

from typing import Literal

from kubeloop.kube.metric_families import MetricFamilies

ErrorSource = Literal["none", "internal", "spec"]

_SUBSYSTEM = "horizontal_pod_autoscaler_controller_"
_BUCKETS = tuple(0.001 * 2**power for power in range(15))
_LABELS = (
    "The label action is scale_down, scale_up or none; the label error is none, internal or spec, for an invalid"
    " HorizontalPodAutoscaler."
)


class AutoscalerMetrics:
    def __init__(self, families: MetricFamilies) -> None:
        labels = ("action", "error")
        self._reconciliations = families.counter(
            _SUBSYSTEM + "reconciliations_total", f"Number of reconciliations of HPA controller. {_LABELS}", labels
        )
        self._reconciliation_seconds = families.histogram(
            _SUBSYSTEM + "reconciliation_duration_seconds",
            f"The time(seconds) that the HPA controller takes to reconcile once. {_LABELS}",
            labels,
            buckets=_BUCKETS,
        )
        labels_of_metric = (*labels, "metric_type")
        self._computations = families.counter(
            _SUBSYSTEM + "metric_computation_total", f"Number of metric computations. {_LABELS}", labels_of_metric
        )
        self._computation_seconds = families.histogram(
            _SUBSYSTEM + "metric_computation_duration_seconds",
            f"The time(seconds) that the HPA controller takes to calculate one metric. {_LABELS}",
            labels_of_metric,
            buckets=_BUCKETS,
        )
        self._autoscalers = families.gauge(
            _SUBSYSTEM + "num_horizontal_pod_autoscalers", "Current number of controlled HPA objects."
        ).labels()
        self._desired_replicas = families.gauge(
            _SUBSYSTEM + "desired_replicas",
            "Current desired replica count for HPA objects.",
            ("namespace", "hpa_name"),
        )

    def reconciled(self, scaled_by: int, error: ErrorSource, seconds: float) -> None:
        """Record a reconciliation. scaled_by: the change of the replicas."""
        labels = _action(scaled_by), error
        self._reconciliations.labels(*labels).inc()
        self._reconciliation_seconds.labels(*labels).observe(seconds)

    def computed(self, metric_type: str, scaled_by: int, error: ErrorSource, seconds: float) -> None:
        """Record the computation of one metric. scaled_by: the change of the replicas that it proposes."""
        labels = _action(scaled_by), error, metric_type
        self._computations.labels(*labels).inc()
        self._computation_seconds.labels(*labels).observe(seconds)

    def set_autoscalers(self, number: int) -> None:
        self._autoscalers.set(number)

    def set_desired_replicas(self, namespace: str, name: str, replicas: int) -> None:
        self._desired_replicas.labels(namespace, name).set(replicas)


def _action(scaled_by: int) -> str:
    if not scaled_by:
        return "none"
    return "scale_up" if scaled_by > 0 else "scale_down"
