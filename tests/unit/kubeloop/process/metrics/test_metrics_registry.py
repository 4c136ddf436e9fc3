"""Own metric classes compared with prometheus_client: equal observations yield equal pages."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from kubeloop.process.metrics.metrics_registry import (
    MetricsRegistry,
    PrometheusCounter,
    PrometheusFamilies,
    PrometheusGauge,
    PrometheusHistogram,
)

BUCKETS = (0.001, 0.5, 1, 2.5, 1000.0)
NAMES = st.sampled_from(["a", 'quoted "b"', "line\nbreak"])
VALUES = st.one_of(st.sampled_from([*BUCKETS, 0.0, 1e-9, 2e6]), st.floats(0, 1e6))


@pytest.fixture(autouse=True, scope="module")
def no_created_series():
    disable_created_metrics()
    yield
    prometheus_client.enable_created_metrics()


OWN_METRICS = SimpleNamespace(Counter=PrometheusCounter, Gauge=PrometheusGauge, Histogram=PrometheusHistogram)
"""Our metrics by the names of prometheus_client."""


def observed(library, registry, observations):
    labelled = library.Histogram("h_seconds", "A histogram.", ["one", "two"], buckets=BUCKETS, registry=registry)
    alone = library.Histogram("alone", "Another.", buckets=BUCKETS, registry=registry)
    counter = library.Counter("c_total", "A counter.", ["one"], registry=registry)
    total = library.Counter("all_total", "All.", registry=registry)
    gauge = library.Gauge("g", "A gauge.", ["one"], registry=registry)
    read = library.Gauge("read", "A gauge that is read.", registry=registry)
    read.set_function(lambda: len(observations))
    for name, value in observations:
        labelled.labels(name, "x").observe(value)
        alone.observe(value)
        counter.labels(name).inc()
        total.inc(value)
        gauge.labels(name).set(value)
    return registry


@given(st.lists(st.tuples(NAMES, VALUES), max_size=20))
def test_exposition_equals_that_of_prometheus_client(observations):
    library_page = observed(prometheus_client, CollectorRegistry(), observations)
    own_page = observed(OWN_METRICS, MetricsRegistry(), observations)
    assert generate_latest(own_page) == generate_latest(library_page)
    assert openmetrics(own_page) == openmetrics(library_page)
    assert generate_latest(observed(OWN_METRICS, CollectorRegistry(), observations)) == generate_latest(library_page)


def test_wrong_number_of_labels_is_rejected():
    counter = PrometheusCounter("c_total", "A counter.", ["one"], registry=MetricsRegistry())
    with pytest.raises(ValueError, match="c_total has the labels"):
        counter.labels("a", "b")


def test_prometheus_client_is_imported_at_the_first_scrape():
    program = (
        "import sys; from kubeloop.process.metrics.process_metrics import *;"
        "from kubeloop.process.metrics.metrics_registry import PrometheusFamilies;"
        "from kubeloop.scheduler.metrics import SchedulerMetrics;"
        "registry = new_registry(); SchedulerMetrics(PrometheusFamilies(registry));"
        "assert 'prometheus_client' not in sys.modules; list(registry.collect());"
        "assert 'prometheus_client' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_family_of_the_same_name_is_created_once():
    registry = MetricsRegistry()
    families = PrometheusFamilies(registry)
    for _ in range(2):
        families.counter("c_total", "A counter.", ["one"]).labels("a").inc()
        families.gauge("g", "A gauge.").labels().set(4)
        families.histogram("h_seconds", "A histogram.", buckets=BUCKETS).labels().observe(0.5)
    page = generate_latest(registry).decode()
    for line in ('c_total{one="a"} 2.0', "g 4.0", "h_seconds_count 2.0"):
        assert page.count(f"{line}\n") == 1
