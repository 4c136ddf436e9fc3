"""endpoint_slice_mirroring_controller_* metrics.

Source: v1.36 pkg/controller/endpointslicemirroring/metrics.
"""

from __future__ import annotations

from typing import Literal

from kubeloop.controllers.endpointslicemirroring.mirrored_slices import MirrorChanges
from kubeloop.controllers.runtime.metrics_interface import MetricFamilies

_SUBSYSTEM = "endpoint_slice_mirroring_controller_"
_ENDPOINT_BUCKETS = tuple(2.0**power for power in range(1, 16))
_SECOND_BUCKETS = tuple(0.001 * 2**power for power in range(15))


class MirroringMetrics:
    def __init__(self, families: MetricFamilies, max_endpoints: int) -> None:
        """max_endpoints: limit of addresses per subset."""
        self._max_endpoints = max_endpoints
        self._per_sync = {
            name: families.histogram(f"{_SUBSYSTEM}{name}_per_sync", documentation, buckets=_ENDPOINT_BUCKETS).labels()
            for name, documentation in (
                ("endpoints_added", "Number of endpoints added on each Endpoints sync"),
                ("endpoints_updated", "Number of endpoints updated on each Endpoints sync"),
                ("endpoints_removed", "Number of endpoints removed on each Endpoints sync"),
                (
                    "addresses_skipped",
                    "Number of addresses skipped on each Endpoints sync due to being invalid or exceeding"
                    " MaxEndpointsPerSubset",
                ),
            )
        }
        self._seconds = families.histogram(
            _SUBSYSTEM + "endpoints_sync_duration",
            "Duration of syncEndpoints() in seconds",
            buckets=_SECOND_BUCKETS,
        ).labels()
        self._endpoints = families.gauge(_SUBSYSTEM + "endpoints_desired", "Number of endpoints desired").labels()
        self._slices = families.gauge(_SUBSYSTEM + "num_endpoint_slices", "Number of EndpointSlices").labels()
        self._desired_slices = families.gauge(
            _SUBSYSTEM + "desired_endpoint_slices",
            "Number of EndpointSlices that would exist with perfect endpoint allocation",
        ).labels()
        self._changes = families.counter(_SUBSYSTEM + "changes", "Number of EndpointSlice changes", ("operation",))
        self._sizes: dict[str, list[tuple[int, int]]] = {}  # endpoints and slices per group, by key

    def synced(self, seconds: float) -> None:
        self._seconds.observe(seconds)

    def slice_changed(self, operation: Literal["create", "update", "delete"]) -> None:
        self._changes.labels(operation).inc()

    def changed(self, key: str, changes: MirrorChanges) -> None:
        """Record what a sync of the Endpoints `key` changes."""
        self._per_sync["endpoints_added"].observe(changes.added)
        self._per_sync["endpoints_updated"].observe(changes.updated)
        self._per_sync["endpoints_removed"].observe(changes.removed)
        self._per_sync["addresses_skipped"].observe(changes.skipped)
        self._sizes[key] = changes.sizes
        self._set_totals()

    def forget(self, key: str) -> None:
        """Remove Endpoints that are not mirrored any more."""
        if self._sizes.pop(key, None) is not None:
            self._set_totals()

    def _set_totals(self) -> None:
        sizes = [size for groups in self._sizes.values() for size in groups]
        self._endpoints.set(sum(endpoints for endpoints, _ in sizes))
        self._slices.set(sum(slices for _, slices in sizes))
        self._desired_slices.set(sum(-(-endpoints // self._max_endpoints) for endpoints, _ in sizes))
