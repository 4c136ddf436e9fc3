"""Bounds of the histograms of all controllers: dashboards and alerts of kube-controller-manager rely on them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.api.runner import new_controller
from kubeloop.process.control_plane.controller_table import CONTROLLER_TABLE, default_options
from support.simulation.metric_values import RecordedMetrics


def exponential(start: float, factor: float, count: int) -> list[float]:
    """Return what ExponentialBuckets of Prometheus' client for Go returns."""
    return [start * factor**number for number in range(count)]


EVICTION = [0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240]
BOUNDS = {  # as in pkg/controller and staging/src/k8s.io/endpointslice of v1.36
    "cronjob_controller_job_creation_skew_duration_seconds": exponential(1, 2, 10),
    "device_taint_eviction_controller_pod_deletion_duration_seconds": EVICTION,
    "endpoint_slice_controller_endpoints_added_per_sync": exponential(2, 2, 15),
    "endpoint_slice_controller_endpoints_removed_per_sync": exponential(2, 2, 15),
    "endpoint_slice_controller_endpointslices_changed_per_sync": [
        *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),  # the default
    ],
    **{
        f"endpoint_slice_mirroring_controller_{name}_per_sync": exponential(2, 2, 15)
        for name in ("endpoints_added", "endpoints_updated", "endpoints_removed", "addresses_skipped")
    },
    "endpoint_slice_mirroring_controller_endpoints_sync_duration": exponential(0.001, 2, 15),
    "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds": exponential(0.001, 2, 15),
    "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds": exponential(0.001, 2, 15),
    "kubeloop_reconcile_duration_seconds": [
        *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    ],
    "job_controller_job_sync_duration_seconds": exponential(0.004, 2, 15),
    "node_collector_update_all_nodes_health_duration_seconds": exponential(0.01, 4, 8),
    "node_collector_update_node_health_duration_seconds": exponential(0.001, 4, 8),
    "replicaset_controller_sorting_deletion_age_ratio": exponential(0.25, 2, 6),
    "root_ca_cert_publisher_sync_duration_seconds": exponential(0.001, 2, 15),
    "taint_eviction_controller_pod_deletion_duration_seconds": EVICTION,
    "ttl_after_finished_controller_job_deletion_duration_seconds": exponential(0.1, 2, 14),
    "workqueue_queue_duration_seconds": exponential(1e-8, 10, 12),
    "workqueue_work_duration_seconds": exponential(1e-8, 10, 12),
}


class RecordedBuckets(RecordedMetrics):
    def __init__(self) -> None:
        super().__init__()
        self.buckets: dict[str, list[float]] = {}

    def histogram(self, name: str, documentation: str, labels: Sequence[str] = (), *, buckets: Sequence[float]) -> Any:
        self.buckets[name] = [*buckets]
        return super().histogram(name, documentation, labels, buckets=buckets)


@pytest.mark.virtual_time
async def test_histograms_have_the_bounds_of_kubernetes(fake_apiserver):
    metrics = RecordedBuckets()
    context = structs.replace(
        fake_apiserver.context,
        metrics=metrics,
        options=default_options(),
        sign_token=lambda _claims: "token",
        signing_authority=lambda _signer: None,
    )
    for descriptor in CONTROLLER_TABLE:
        factory = getattr(importlib.import_module(descriptor.module), descriptor.factory.rpartition(":")[2])
        new_controller(factory, context)
    del metrics.buckets["controller_runtime_reconcile_time_seconds"]  # of controller-runtime
    assert metrics.buckets == {name: pytest.approx(bounds) for name, bounds in BOUNDS.items()}
