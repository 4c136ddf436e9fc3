"""Metrics that the controllers of EndpointSlices share. Source: v1.36 staging/src/k8s.io/endpointslice/metrics."""

from __future__ import annotations

from typing import Literal

from kubeloop.kube.metric_families import MetricFamilies

ENDPOINT_BUCKETS = tuple(2.0**power for power in range(1, 16))


class SliceMetrics:
    def __init__(self, families: MetricFamilies, subsystem: str) -> None:
        """subsystem: start of the names, such as "endpoint_slice_controller_"."""
        self._endpoints = families.gauge(subsystem + "endpoints_desired", "Number of endpoints desired").labels()
        self._slices = families.gauge(subsystem + "num_endpoint_slices", "Number of EndpointSlices").labels()
        self._desired_slices = families.gauge(
            subsystem + "desired_endpoint_slices",
            "Number of EndpointSlices that would exist with perfect endpoint allocation",
        ).labels()
        self._changes = families.counter(subsystem + "changes", "Number of EndpointSlice changes", ("operation",))

    def slice_changed(self, operation: Literal["create", "update", "delete"]) -> None:
        self._changes.labels(operation).inc()

    def set_totals(self, endpoints: int, slices: int, desired_slices: int) -> None:
        self._endpoints.set(endpoints)
        self._slices.set(slices)
        self._desired_slices.set(desired_slices)
