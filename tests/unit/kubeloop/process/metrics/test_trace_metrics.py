"""Histograms of phases with exemplars, parsed by prometheus_client."""

from __future__ import annotations

import aiohttp
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from kubeloop.kube.clock import SystemClock
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.metrics.metrics_registry import MetricsRegistry
from kubeloop.process.metrics.trace_metrics import MAX_GROUPS, PrometheusTraceMetrics
from kubeloop.tracing.metrics_interface import TracedPod
from support.processes.endpoints import serving

TRACE = "0af7651916cd43dd8448eb211c80319c"
POD = TracedPod(TRACE, "shop", "Deployment")
LABELS = (("namespace", "shop"), ("owner_kind", "Deployment"))
PHASES = "kubeloop_pod_phase_duration_seconds"


def filled():
    registry = CollectorRegistry()
    metrics = PrometheusTraceMetrics(registry)
    for seconds in (0.003, 0.004, 7.0, 1e6):
        metrics.phases({"queue active": round(seconds * 1e9)}, POD)
    metrics.phases({"total": 100_000_000}, POD)
    metrics.start_sli(4_500_000_000, POD)
    metrics.spans_exported(5)
    metrics.spans_dropped("queue full", 3)
    metrics.trace_lost("too many open")
    return registry


def samples(families):
    return {(s.name, *sorted(s.labels.items())): s for family in families for s in family.samples}


def test_phase_histograms_have_exemplars():
    parsed = samples(parse_openmetrics(openmetrics(filled()).decode()))

    def bucket(bound):
        return parsed[f"{PHASES}_bucket", ("le", bound), *LABELS, ("phase", "queue_active")]

    assert [bucket(bound).value for bound in ("0.0025", "0.005", "5.0", "10.0", "3600.0", "+Inf")] == [0, 2, 2, 3, 3, 4]
    assert bucket("0.005").exemplar.labels == {"trace_id": TRACE}
    assert bucket("0.005").exemplar.value == 0.004
    assert bucket("0.0025").exemplar is None
    assert parsed[f"{PHASES}_count", *LABELS, ("phase", "queue_active")].value == 4
    assert parsed[f"{PHASES}_sum", *LABELS, ("phase", "queue_active")].value == 1000007.007
    assert parsed["kubeloop_pod_created_to_bound_duration_seconds_count", *LABELS].value == 1
    sli = "kubeloop_pod_start_sli_duration_seconds_bucket"
    assert [parsed[sli, ("le", bound), *LABELS].value for bound in ("4.0", "5.0", "+Inf")] == [0, 1, 1]
    assert parsed[sli, ("le", "5.0"), *LABELS].exemplar.labels == {"trace_id": TRACE}
    assert parsed["kubeloop_trace_spans_dropped_total", ("reason", "queue_full")].value == 3
    assert parsed["kubeloop_trace_spans_exported_total",].value == 5
    assert parsed["kubeloop_traces_lost_total", ("reason", "too_many_open")].value == 1


def test_pairs_of_namespace_and_owner_kind_are_bounded():
    registry = MetricsRegistry()
    metrics = PrometheusTraceMetrics(registry)
    for number in range(MAX_GROUPS + 20):
        metrics.phases({"total": 1}, TracedPod(TRACE, f"ns-{number}", "Job"))
    metrics.phases({"total": 1}, TracedPod(TRACE, "ns-0", "Job"))
    name = "kubeloop_pod_created_to_bound_duration_seconds_count"
    counts = {
        (sample.labels["namespace"], sample.labels["owner_kind"]): sample.value
        for (series, *_), sample in samples(registry.collect()).items()
        if series == name
    }
    assert len(counts) == MAX_GROUPS + 1
    assert counts["ns-0", "Job"] == 2
    assert counts["other", "other"] == 20


async def test_metrics_format_follows_the_accept_header():
    async with (
        serving(EndpointServer(filled(), clock=SystemClock())) as url,
        aiohttp.ClientSession() as session,
    ):

        async def scrape(accept):
            async with session.get(f"{url}/metrics", headers={"Accept": accept}) as response:
                return response.headers["Content-Type"], await response.text()

        accept_header = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"
        kind, text = await scrape(accept_header)
        assert kind.startswith("application/openmetrics-text")
        assert f'# {{trace_id="{TRACE}"}}' in text
        assert samples(parse_openmetrics(text))
        kind, text = await scrape("*/*")
        assert kind.startswith("text/plain")
        assert "trace_id" not in text
        assert samples(parse_text(text))
