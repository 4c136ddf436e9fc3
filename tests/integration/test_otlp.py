"""Traces leave the process by OTLP/HTTP as the standard OTEL_* variables ask for, whole."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from support.cli_processes import MIXED, WEB, Kubeloop
from support.otlp import Collector, by_trace

FIT_IN_MIXED = 17  # pods of the example; the others have reasons to wait


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector().running() as collector:
        yield collector


def up(folder, collector: Collector, **environment: str) -> dict:
    done = Kubeloop(folder).run(
        "up", "--once", "--json", "-f", WEB, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_pods_trace_arrives_as_one_tree_with_its_reconcile_linked(tmp_path, collector):
    document = up(tmp_path, collector)
    traces = by_trace(collector.spans())
    assert collector.paths == {"/v1/traces"}
    assert {each["service.name"] for each in collector.resources()} == {"kubeloop"}
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


def test_the_users_request_is_at_the_beginning_of_every_chain_of_links(tmp_path, collector):
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
        assert (root.trace_id, root.span_id) in chain[1].links, "and back to the pod"


def test_tail_rules_keep_the_pods_that_the_sampler_does_not_want(tmp_path, collector):
    sampler = {"OTEL_TRACES_SAMPLER": "always_off", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    for seconds in (4, 20, 90):  # on a slow machine pods are still being bound when the first time is over
        collector.requests.clear()
        arguments = ("up", "--once", "--json", "--timeout", seconds, "--trace-keep", "failed", "-f", MIXED)
        done = Kubeloop(tmp_path).run(*arguments, **sampler)
        document = json.loads(done.stdout)
        if sum(bool(pod["node"]) for pod in document["pods"]) == FIT_IN_MIXED:
            break
    kept = {pod["name"] for pod in document["pods"] if pod["traceId"]}
    roots = [span for span in collector.spans() if span.name == "pod"]
    assert {root.attributes["k8s.pod.name"] for root in roots} == {
        pod["name"] for pod in document["pods"] if pod["traceId"] and pod["node"]
    }
    assert all(root.attributes["kubeloop.kept_by"] == "failed" for root in roots)
    assert kept < {pod["name"] for pod in document["pods"]}


def test_with_the_sampler_off_nothing_is_sent_and_the_pods_run_all_the_same(tmp_path, collector):
    document = up(tmp_path, collector, OTEL_TRACES_SAMPLER="always_off")
    assert document["pods"]
    assert all(pod["ready"] for pod in document["pods"])
    assert all(pod["traceId"] == "" for pod in document["pods"])
    assert collector.requests == []


def test_a_collector_that_is_down_costs_the_traces_and_nothing_else(tmp_path):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # ours, and not listening
        down = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        done = Kubeloop(tmp_path).run(
            "up", "--once", "-f", WEB, OTEL_EXPORTER_OTLP_ENDPOINT=down, OTEL_EXPORTER_OTLP_TIMEOUT="1"
        )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert done.stderr.count("cannot export traces") == 1, "told once"
