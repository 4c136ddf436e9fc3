"""endpoint_slice_controller_* metrics. Source: v1.36 staging/src/k8s.io/endpointslice/metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from kubeloop.controllers.runtime.services.slice_metrics import ENDPOINT_BUCKETS, SliceMetrics
from kubeloop.kube.metric_families import MetricFamilies

_SUBSYSTEM = "endpoint_slice_controller_"
_DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # of Prometheus' client for Go


class ServiceSize(NamedTuple):
    """Endpoints of a Service, its slices, and the slices that it would have if each but one were full."""

    endpoints: int = 0
    slices: int = 0
    desired_slices: int = 0


def service_size(group_sizes: Iterable[int], slices: int, max_endpoints: int) -> ServiceSize:
    """Return the size of a Service. group_sizes: numbers of endpoints with the same ports."""
    sizes = list(group_sizes)
    desired = sum(-(-size // max_endpoints) for size in sizes)
    return ServiceSize(sum(sizes), slices, max(1, desired))  # without endpoints, a placeholder remains


class EndpointSliceMetrics(SliceMetrics):
    def __init__(self, families: MetricFamilies) -> None:
        super().__init__(families, _SUBSYSTEM)
        self._added = families.histogram(
            _SUBSYSTEM + "endpoints_added_per_sync",
            "Number of endpoints added on each Service sync",
            buckets=ENDPOINT_BUCKETS,
        ).labels()
        self._removed = families.histogram(
            _SUBSYSTEM + "endpoints_removed_per_sync",
            "Number of endpoints removed on each Service sync",
            buckets=ENDPOINT_BUCKETS,
        ).labels()
        self._changed_per_sync = families.histogram(
            _SUBSYSTEM + "endpointslices_changed_per_sync",
            "Number of EndpointSlices changed on each Service sync",
            ("topology", "traffic_distribution"),
            buckets=_DEFAULT_BUCKETS,
        )
        self._syncs = families.counter(_SUBSYSTEM + "syncs", "Number of EndpointSlice syncs", ("result",))
        self._distributions = families.gauge(
            _SUBSYSTEM + "services_count_by_traffic_distribution",
            "Number of Services using some specific trafficDistribution",
            ("traffic_distribution",),
        )
        self._sizes: dict[tuple[str, str], ServiceSize] = {}  # by key of the Service and address type
        self._distribution_of: dict[str, str] = {}  # by key of the Service
        self._total = ServiceSize()

    def synced(self, result: Literal["success", "stale", "error"]) -> None:
        self._syncs.labels(result).inc()

    def endpoints_changed(self, added: int, removed: int) -> None:
        """Record the endpoints that one address type of a Service gets and loses in a sync."""
        self._added.observe(added)
        self._removed.observe(removed)

    def slices_changed(self, number: int, *, topology_hints: bool, distribution: str) -> None:
        """Record the slices that a sync of one address type has written. distribution: a valid one, or ""."""
        self._changed_per_sync.labels("Auto" if topology_hints else "Disabled", distribution).observe(number)

    def set_size(self, service: str, address_type: str, size: ServiceSize) -> None:
        before = self._sizes.get((service, address_type), ServiceSize())
        self._sizes[service, address_type] = size
        self._add(before, size)

    def set_distribution(self, service: str, distribution: str) -> None:
        """Set the trafficDistribution of a Service; "" for none."""
        before = self._distribution_of.pop(service, "")
        if distribution:
            self._distribution_of[service] = distribution
        for changed in {before, distribution} - {""}:
            count = sum(value == changed for value in self._distribution_of.values())
            self._distributions.labels(changed).set(count)

    def forget(self, service: str, address_types: Iterable[str]) -> None:
        """Remove a Service that was deleted."""
        self.set_distribution(service, "")
        for address_type in address_types:
            self._add(self._sizes.pop((service, address_type), ServiceSize()), ServiceSize())

    def _add(self, before: ServiceSize, after: ServiceSize) -> None:
        if before == after:
            return
        self._total = ServiceSize(
            *(total + new - old for total, new, old in zip(self._total, after, before, strict=True))
        )
        self.set_totals(*self._total)
