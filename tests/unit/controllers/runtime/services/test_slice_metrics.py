"""Metrics that the controllers of EndpointSlices share."""

from __future__ import annotations

from kubeloop.controllers.runtime.services.slice_metrics import ENDPOINT_BUCKETS, SliceMetrics
from support.simulation.metric_values import RecordedMetrics


def test_totals_and_changes_are_set_under_the_subsystem():
    recorded = RecordedMetrics()
    metrics = SliceMetrics(recorded, "endpoint_slice_controller_")
    metrics.slice_changed("create")
    metrics.set_totals(endpoints=150, slices=3, desired_slices=2)
    values = recorded.values("endpoint_slice_controller_")
    names = ("endpoints_desired", "num_endpoint_slices", "desired_endpoint_slices")
    assert [values[name] for name in names] == [150, 3, 2]
    assert [value for name, value in values.items() if name.startswith("changes")] == [1]


def test_endpoint_buckets_are_powers_of_two_up_to_32768():
    assert (ENDPOINT_BUCKETS[0], ENDPOINT_BUCKETS[1], ENDPOINT_BUCKETS[-1], len(ENDPOINT_BUCKETS)) == (2, 4, 32768, 15)
