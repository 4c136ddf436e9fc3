"""Traces of kubeloop and a real kube-apiserver in Grafana Tempo, with the documented queries."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.comparison.fake_kubelet import fake_kubelet, make_node
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.comparison.scenario import deployment
from support.processes.cli_processes import ROOT, TIMEOUT_SECONDS, Kubeloop
from support.traces.tempo import TEMPO, Tempo, running_tempo

PODS = 6
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@dataclass(frozen=True)
class Span:
    service: str
    name: str
    span_id: str
    parent_id: str
    start: int
    end: int
    attributes: dict[str, Any]
    links: tuple[str, ...]  # trace IDs


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tempo, RealApiServer]]:
    """Roll out a Deployment and create an unschedulable pod, with all spans in Tempo."""
    if TEMPO is None:
        pytest.skip("KUBELOOP_TEMPO names no Tempo")
    needs_binaries()
    folder = tmp_path_factory.mktemp("tempo")
    with running_tempo(folder / "tempo") as tempo:
        tracing = folder / "tracing.json"
        tracing.write_text(
            json.dumps(
                {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": "TracingConfiguration",
                    "endpoint": tempo.otlp_grpc,
                    "samplingRatePerMillion": 1_000_000,
                }
            )
        )
        with real_apiserver(folder / "server", {"tracing-config-file": str(tracing)}) as server, fake_kubelet(server):
            roll_out(server, folder, tempo)
            yield tempo, server


def roll_out(server: RealApiServer, folder: Path, tempo: Tempo) -> None:
    for number in range(3):
        make_node(server, f"node-{number}")
    arguments = ("run", f"--kubeconfig={server.kubeconfig}", "--trace-until=ready", "--trace-requests")
    with Kubeloop(folder).running(*arguments, OTEL_EXPORTER_OTLP_ENDPOINT=tempo.otlp_http) as running:
        running.wait_for("endpoint")
        server.request("POST", DEPLOYMENTS, deployment("frontend", PODS))
        huge = {"resources": {"requests": {"cpu": "100"}}}
        server.request("POST", DEPLOYMENTS, deployment("huge", 1, container=huge))
        wait(lambda: available(server) == PODS, "the Deployment is complete")
        wait(lambda: "Unschedulable" in json.dumps(pods(server)), "the huge pod was attempted")
        server.request("DELETE", f"{DEPLOYMENTS}/huge")
        server.request("DELETE", "/apis/apps/v1/namespaces/default/replicasets?labelSelector=app%3Dhuge")
        server.request("DELETE", "/api/v1/namespaces/default/pods?labelSelector=app%3Dhuge")
        wait(lambda: len(pods(server)) == PODS, "the huge pod is deleted")
        assert running.stop() == 0, running.lines


def pods(server: RealApiServer) -> list[dict[str, Any]]:
    return server.request("GET", "/api/v1/namespaces/default/pods")["items"]


def available(server: RealApiServer) -> int:
    return server.request("GET", f"{DEPLOYMENTS}/frontend").get("status", {}).get("availableReplicas", 0)


def wait(condition: Callable[[], object], description: str) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < TIMEOUT_SECONDS, f"not within {TIMEOUT_SECONDS:g} s: {description}"
        time.sleep(0.1)


def spans_of(trace: dict[str, Any] | None) -> list[Span]:
    """Return the spans of Tempo's response, whose IDs are base64, like bytes in protobuf's JSON."""
    if trace is None:
        return []
    spans: list[Span] = []
    for batch in trace.get("batches") or trace["trace"]["resourceSpans"]:
        service = attributes_of(batch["resource"])["service.name"]
        for scope in batch["scopeSpans"]:
            spans += [
                Span(
                    service,
                    span["name"],
                    hex_id(span["spanId"]),
                    hex_id(span.get("parentSpanId", "")),
                    int(span["startTimeUnixNano"]),
                    int(span["endTimeUnixNano"]),
                    attributes_of(span),
                    tuple(hex_id(link["traceId"]) for link in span.get("links", [])),
                )
                for span in scope["spans"]
            ]
    return spans


def services_of(tempo: Tempo, trace_id: str) -> set[str]:
    return {span.service for span in spans_of(tempo.trace(trace_id))}


def hex_id(text: str) -> str:
    return base64.b64decode(text).hex()


def attributes_of(message: dict[str, Any]) -> dict[str, Any]:
    return {
        attribute["key"]: next(iter(attribute["value"].values()), None) for attribute in message.get("attributes", [])
    }


def test_spans_of_kubeloop_and_kube_apiserver_are_one_tree(stored):
    tempo, _ = stored
    query = '{ resource.service.name = "kubeloop" && name = "pod" && span.k8s.deployment.name = "frontend" }'
    wait(lambda: len(tempo.search(query)) == PODS, "Tempo finds every pod")
    for summary in tempo.search(query):
        trace_id = summary["traceID"].zfill(32)
        wait(lambda trace_id=trace_id: services_of(tempo, trace_id) == {"kubeloop", "apiserver"}, "both services")
        spans = spans_of(tempo.trace(trace_id))
        by_id = {span.span_id: span for span in spans}
        (root,) = [span for span in spans if not span.parent_id]
        assert (root.service, root.name) == ("kubeloop", "pod")
        assert {span.parent_id for span in spans if span is not root} <= by_id.keys(), "every span has its parent"
        served = {(by_id[span.parent_id].name, span.name) for span in spans if _is_request(span, by_id)}
        assert ("pod", "POST /api/v1/namespaces/{:namespace}/pods") in served
        assert ("pod", "POST /api/v1/namespaces/{:namespace}/pods/{:name}/binding") in served
        assert any(span.service == "apiserver" and span.name.startswith("etcd") for span in spans), spans


def _is_request(span: Span, by_id: dict[str, Span]) -> bool:
    """Return True for a span of the API server whose parent is a span of kubeloop."""
    return span.service == "apiserver" and bool(span.parent_id) and by_id[span.parent_id].service == "kubeloop"


def test_spans_for_an_unprivileged_user_are_linked(tmp_path, stored):
    tempo, server = stored
    certificate, key = server.authority.sign("plain", user="plain", groups=["people"])
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    arguments = ("run", f"--kubeconfig={server.kubeconfig_of('plain', user)}")
    with Kubeloop(tmp_path).running(*arguments, OTEL_EXPORTER_OTLP_ENDPOINT=tempo.otlp_http) as running:
        running.wait_for("endpoint")
        server.request("POST", DEPLOYMENTS, deployment("linked", 1))
        wait(
            lambda: any(pod["spec"].get("nodeName") for pod in pods(server) if _is_of(pod, "linked")),
            "the pod is bound",
        )
        assert running.stop() == 0, running.lines
    query = '{ name = "pod" && span.k8s.deployment.name = "linked" }'
    wait(lambda: tempo.search(query), "Tempo finds the pod")
    trace_id = tempo.search(query)[0]["traceID"].zfill(32)
    assert {span.service for span in spans_of(tempo.trace(trace_id))} == {"kubeloop"}
    linked = f'{{ resource.service.name = "apiserver" && link:traceID = "{trace_id}" }}'
    wait(lambda: tempo.search(linked), "Tempo finds the linked spans")


def _is_of(pod: dict[str, Any], app: str) -> bool:
    return pod["metadata"]["labels"]["app"] == app


def test_documented_queries_return_results(stored):
    tempo, _ = stored
    section = (ROOT / "docs" / "tracing.md").read_text().partition("TraceQL finds")[2].partition("**Any OTLP")[0]
    queries = [line.strip() for line in section.splitlines() if line.startswith("    {")]
    assert len(queries) >= 3
    for query in queries:
        if "|" in query.replace("||", ""):
            parameters = {
                "q": query,
                "start": str(int(time.time()) - 600),
                "end": str(int(time.time()) + 1),
                "step": "600s",
            }
            assert "series" in tempo.get("/api/metrics/query_range", **parameters), query
        else:
            # all durations are short here
            assert tempo.search(re.sub(r"duration > \S+", "duration > 1ns", query)), query


@pytest.mark.parametrize(
    ("query", "count"),
    [
        pytest.param('{ name = "scheduling attempt" && span.kubeloop.result = "unschedulable" }', 1, id="refused"),
        pytest.param('{ name = "pod" && span.kubeloop.outcome = "ready" }', PODS, id="outcome"),
        pytest.param('{ name = "filter" && span.kubeloop.rejected.NodeResourcesFit = 3 }', 1, id="rejected by"),
        pytest.param(
            '{ span.k8s.deployment.name = "frontend" && span.kubeloop.attempts = 1 && span.k8s.node.name =~ "nod.*" }',
            PODS,
            id="node",
        ),
        pytest.param('{ name = "pod" } >> { resource.service.name = "apiserver" }', PODS + 1, id="below a pod"),
        pytest.param('{ name = "reconcile replicaset" && span.kubeloop.controller = "replicaset" }', 1, id="reconcile"),
        pytest.param('{ event:name = "rejected" && event.kubeloop.plugin = "NodeResourcesFit" }', 1, id="event"),
    ],
)
def test_documented_attributes_are_searchable(stored, query, count):
    tempo, _ = stored
    wait(lambda: len(tempo.search(query)) >= count, f"{count} traces for {query}")
    if count in (PODS, PODS + 1):
        assert len(tempo.search(query)) == count


def test_pod_links_to_the_reconcile_that_created_it(stored):
    tempo, _ = stored
    for summary in tempo.search('{ name = "pod" && span.k8s.deployment.name = "frontend" }'):
        (root,) = [span for span in spans_of(tempo.trace(summary["traceID"].zfill(32))) if span.name == "pod"]
        (link,) = root.links
        assert any(span.name == "reconcile replicaset" for span in spans_of(tempo.trace(link)))


def test_trace_command_reads_a_tempo_response(stored, tmp_path):
    tempo, _ = stored
    summary = tempo.search('{ name = "pod" && span.k8s.deployment.name = "frontend" }')[0]
    trace = tempo.trace(summary["traceID"].zfill(32))
    (root,) = [span for span in spans_of(trace) if span.name == "pod"]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(trace))
    pod = root.attributes["k8s.pod.name"]
    result = Kubeloop(tmp_path).run("trace", f"pod/{pod}", "--from", file)
    assert result.returncode == 0, result.stderr
    assert "POST /api/v1/namespaces/{:namespace}/pods" in result.stdout
