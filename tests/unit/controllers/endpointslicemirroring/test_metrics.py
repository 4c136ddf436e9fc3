"""Metrics of the EndpointSlice mirroring controller."""

from __future__ import annotations

from kubeloop.controllers.endpointslicemirroring.metrics import MirroringMetrics
from kubeloop.controllers.endpointslicemirroring.mirrored_slices import MirrorChanges
from support.simulation.metric_values import RecordedMetrics


def test_sizes_are_summed_over_all_endpoints():
    recorded = RecordedMetrics()
    metrics = MirroringMetrics(recorded, max_endpoints=2)
    metrics.changed("ns/a", MirrorChanges(added=3, skipped=1, sizes=[(3, 1), (0, 0)]))
    metrics.changed("ns/b", MirrorChanges(sizes=[(1, 1)]))
    names = ("endpoints_desired", "num_endpoint_slices", "desired_endpoint_slices")
    values = recorded.values("endpoint_slice_mirroring_controller_")
    assert [values[name] for name in names] == [4, 2, 3]
    metrics.forget("ns/a")
    metrics.forget("ns/unknown")
    values = recorded.values("endpoint_slice_mirroring_controller_")
    assert [values[name] for name in names] == [1, 1, 1]
    assert values["endpoints_added_per_sync_count"] == 2
