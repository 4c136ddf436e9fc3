"""Metrics of the observation of a cluster."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from kubeloop.process.metrics.metrics_registry import MetricsRegistry
from kubeloop.process.metrics.observation_metrics import ObservationMetrics
from kubeloop.tracing.observation.clock_skew import API_SERVER, ClockSkew

SECOND = 1_000_000_000
NOW_NS = 1_000 * SECOND


def page(skew: ClockSkew) -> list[str]:
    registry = MetricsRegistry()
    metrics = ObservationMetrics(registry, skew, lambda: 7)
    metrics.watch_gaps.labels("pods").inc()
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_watch_gaps_and_dropped_events_are_counted() -> None:
    lines = page(ClockSkew())
    assert 'kubeloop_observe_watch_gaps_total{resource="pods"} 1.0' in lines
    assert "kubeloop_observe_events_dropped_total 7.0" in lines


@pytest.mark.parametrize(
    ("ahead_seconds", "api_server", "nodes"),
    [
        pytest.param({}, "0.0", "0.0", id="nothing is known"),
        pytest.param({API_SERVER: 2, "node-1": 3, "node-2": 5}, "2.0", "5.0", id="the largest of the nodes"),
        pytest.param({"node-1": -3}, "0.0", "0.0", id="a late arrival is no skew"),
    ],
)
def test_skew_is_the_least_certain_difference(ahead_seconds, api_server, nodes) -> None:
    skew = ClockSkew()
    for clock, seconds in ahead_seconds.items():
        skew.timestamp(clock, NOW_NS + seconds * SECOND, NOW_NS)
    lines = page(skew)
    assert f'kubeloop_observe_clock_skew_seconds{{clock="api_server"}} {api_server}' in lines
    assert f'kubeloop_observe_clock_skew_seconds{{clock="nodes"}} {nodes}' in lines


def test_clock_that_is_behind_is_negative() -> None:
    skew = ClockSkew()
    skew.timestamp(API_SERVER, NOW_NS - 9 * SECOND, NOW_NS, after_ns=NOW_NS - SECOND)
    assert 'kubeloop_observe_clock_skew_seconds{clock="api_server"} -7.0' in page(skew)
