"""endpoint_slice_mirroring_controller_* metrics.

Source: v1.36 pkg/controller/endpointslicemirroring/metrics.
"""

from __future__ import annotations

from kubeloop.controllers.endpointslicemirroring.mirrored_slices import MirrorChanges
from kubeloop.controllers.runtime.services.slice_metrics import ENDPOINT_BUCKETS, SliceMetrics
from kubeloop.kube.metric_families import MetricFamilies

_SUBSYSTEM = "endpoint_slice_mirroring_controller_"
_SECOND_BUCKETS = tuple(0.001 * 2**power for power in range(15))


class MirroringMetrics(SliceMetrics):
    def __init__(self, families: MetricFamilies, max_endpoints: int) -> None:
        """max_endpoints: limit of addresses per subset."""
        super().__init__(families, _SUBSYSTEM)
        self._max_endpoints = max_endpoints
        self._per_sync = {
            name: families.histogram(f"{_SUBSYSTEM}{name}_per_sync", documentation, buckets=ENDPOINT_BUCKETS).labels()
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
        self._sizes: dict[str, list[tuple[int, int]]] = {}  # endpoints and slices per group, by key

    def synced(self, seconds: float) -> None:
        self._seconds.observe(seconds)

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
        self.set_totals(
            sum(endpoints for endpoints, _ in sizes),
            sum(slices for _, slices in sizes),
            sum(-(-endpoints // self._max_endpoints) for endpoints, _ in sizes),
        )
