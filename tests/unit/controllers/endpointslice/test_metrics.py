"""endpoint_slice_controller_* metrics."""

from __future__ import annotations

import pytest

from kubeloop.controllers.endpointslice.metrics import EndpointSliceMetrics, ServiceSize, service_size
from support.simulation.metric_values import RecordedMetrics

PREFIX = "endpoint_slice_controller_"
GAUGES = ("endpoints_desired", "num_endpoint_slices", "desired_endpoint_slices")


@pytest.mark.parametrize(
    ("group_sizes", "slices", "size"),
    [
        pytest.param([], 1, ServiceSize(0, 1, 1), id="placeholder"),
        pytest.param([100], 1, ServiceSize(100, 1, 1), id="one full slice"),
        pytest.param([101, 1], 5, ServiceSize(102, 5, 3), id="two groups of ports"),
    ],
)
def test_service_size(group_sizes: list[int], slices: int, size: ServiceSize):
    assert service_size(group_sizes, slices, 100) == size


def test_gauges_sum_all_services():
    recorded = RecordedMetrics()
    metrics = EndpointSliceMetrics(recorded)

    def gauges() -> list[float]:
        values = recorded.values(PREFIX)
        return [values[name] for name in GAUGES]

    metrics.set_size("ns/a", "IPv4", ServiceSize(5, 2, 1))
    metrics.set_size("ns/b", "IPv4", ServiceSize(1, 1, 1))
    assert gauges() == [6, 3, 2]
    metrics.set_size("ns/a", "IPv4", ServiceSize(7, 2, 1))
    assert gauges() == [8, 3, 2]
    metrics.forget("ns/a", ["IPv4", "IPv6"])
    assert gauges() == [1, 1, 1]


def test_services_count_by_traffic_distribution():
    recorded = RecordedMetrics()
    metrics = EndpointSliceMetrics(recorded)
    for service, distribution in (("a", "PreferClose"), ("b", "PreferClose"), ("a", "PreferSameNode"), ("c", "")):
        metrics.set_distribution(service, distribution)
    metrics.forget("b", ["IPv4"])
    assert recorded.values(PREFIX + "services_count_by_traffic_distribution") == {
        ",PreferClose": 0,
        ",PreferSameNode": 1,
    }
