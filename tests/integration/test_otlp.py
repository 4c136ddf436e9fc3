"""Export of traces with OTLP/HTTP, configured by the standard OTEL_* variables."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from support.processes.cli_processes import MIXED, WEB, Kubeloop
from support.traces.installed_exporter import install_exporter
from support.traces.otlp import Collector, by_trace

SCHEDULABLE_IN_MIXED = 17  # pods of the example; the others stay pending


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector().running() as collector:
        yield collector


def up(folder, collector: Collector, **environment: str) -> dict:
    result = Kubeloop(folder).run(
        "up", "--once", "--json", "-f", WEB, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **environment
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_pod_traces_are_trees_linked_to_their_reconciles(tmp_path, collector):
    document = up(tmp_path, collector)
    traces = by_trace(collector.spans())
    assert collector.paths == {"/v1/traces"}
    assert {resource["service.name"] for resource in collector.resources()} == {"kubeloop"}
    assert document["pods"]
    pods = {pod["traceId"]: pod for pod in document["pods"]}
    for trace_id, pod in pods.items():
        spans = {span.span_id: span for span in traces[trace_id]}
        assert len(spans) == len(traces[trace_id])
        (root,) = [span for span in spans.values() if not span.parent_id]
        assert root.attributes["k8s.pod.name"] == pod["name"]
        for span in spans.values():
            parent = spans.get(span.parent_id, root)
            assert span is root or span.parent_id in spans
            assert parent.start <= span.start <= span.end <= parent.end
        names = {span.name for span in spans.values()}
        assert {"create", "watch delivery", "queue active", "scheduling attempt", "filter", "score", "bind"} <= names
        reconciles = {linked for span in spans.values() for linked, _ in span.links}
        assert reconciles
        assert reconciles <= traces.keys() - pods.keys(), "a link leads to a reconcile that was not exported"


def test_links_lead_from_pods_to_the_user_request(tmp_path, collector):
    document = up(tmp_path, collector)
    spans = {(span.trace_id, span.span_id): span for span in collector.spans()}
    for pod in document["pods"]:
        (root,) = [span for span in spans.values() if span.trace_id == pod["traceId"] and not span.parent_id]
        chain = [root]
        while chain[-1].name != "apply":
            causes = [spans[link] for link in chain[-1].links if spans[link].name != "pod"]
            assert causes, [span.name for span in chain]
            chain.append(causes[0])
        assert [span.name for span in chain] == ["pod", "reconcile replicaset", "reconcile deployment", "apply"]
        assert chain[-1].attributes["kubeloop.name"] == "web"
        assert (root.trace_id, root.span_id) in chain[1].links, "the link back to the pod"


def test_tail_rules_keep_pods_that_are_not_sampled(tmp_path, collector):
    sampler = {"OTEL_TRACES_SAMPLER": "always_off", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    for seconds in (4, 20, 90):  # a slow machine needs longer to bind all pods
        collector.requests.clear()
        arguments = ("up", "--once", "--json", "--timeout", seconds, "--trace-tail-sampling", "failed", "-f", MIXED)
        result = Kubeloop(tmp_path).run(*arguments, **sampler)
        document = json.loads(result.stdout)
        if sum(bool(pod["node"]) for pod in document["pods"]) == SCHEDULABLE_IN_MIXED:
            break
    traced = {pod["name"] for pod in document["pods"] if pod["traceId"]}
    roots = [span for span in collector.spans() if span.name == "pod"]
    assert {root.attributes["k8s.pod.name"] for root in roots} == {
        pod["name"] for pod in document["pods"] if pod["traceId"] and pod["node"]
    }
    assert all(root.attributes["kubeloop.sampled_by"] == "failed" for root in roots)
    assert traced < {pod["name"] for pod in document["pods"]}


def test_disabled_sampler_exports_nothing(tmp_path, collector):
    document = up(tmp_path, collector, OTEL_TRACES_SAMPLER="always_off")
    assert document["pods"]
    assert all(pod["ready"] for pod in document["pods"])
    assert all(pod["traceId"] == "" for pod in document["pods"])
    assert collector.requests == []


def test_installed_exporter_and_otlp_get_every_pod(tmp_path, collector):
    site = tmp_path / "site"
    site.mkdir()
    install_exporter(site)
    spans = tmp_path / "spans"
    exporters = {"OTEL_TRACES_EXPORTER": "otlp,file", "PYTHONPATH": str(site), "SPAN_FILE": str(spans)}
    document = up(tmp_path, collector, **exporters)
    exported = Counter(span.name for span in collector.spans())
    assert exported["pod"] == len(document["pods"])
    lines = spans.read_text().splitlines()
    assert lines[-1] == "shut down"
    assert Counter(line.removesuffix(" kubeloop") for line in lines[:-1]) == exported


def test_unknown_exporter_is_error_that_lists_installed_ones(tmp_path):
    result = Kubeloop(tmp_path).run("up", "--once", "-f", WEB, OTEL_TRACES_EXPORTER="zipkin")
    assert result.returncode == 2
    assert "no exporter 'zipkin' is installed" in result.stderr
    assert "console" in result.stderr
    assert "Traceback" not in result.stderr


def test_unreachable_collector_loses_only_traces(tmp_path):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound, not listening
        endpoint = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        result = Kubeloop(tmp_path).run(
            "up", "--once", "-f", WEB, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_EXPORTER_OTLP_TIMEOUT="1"
        )
    assert result.returncode == 0
    assert "Traceback" not in result.stderr
    assert result.stderr.count("cannot export traces") == 1


def test_configuration_file_replaces_the_variables(tmp_path, collector):
    exporter = {"otlp_http": {"endpoint": "${COLLECTOR}/v1/traces"}}
    resource = {"attributes": [{"name": "service.name", "value": "declared"}]}
    provider = {"processors": [{"batch": {"exporter": exporter}}]}
    path = tmp_path / "otel.yaml"
    path.write_text(json.dumps({"file_format": "1.0", "resource": resource, "tracer_provider": provider}))
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1", "OTEL_TRACES_SAMPLER": "always_off"}
    result = Kubeloop(tmp_path).run(
        *("up", "--once", "--json", "-f", WEB), OTEL_CONFIG_FILE=str(path), COLLECTOR=collector.url, **variables
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["pods"]
    assert {resource["service.name"] for resource in collector.resources()} == {"declared"}
