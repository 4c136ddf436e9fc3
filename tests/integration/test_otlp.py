"""Traces leave the process by OTLP/HTTP as the standard OTEL_* variables ask for, whole."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from support.driving import WEB, Kubeloop


class Collector:
    """An OTLP/HTTP receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: set[str] = set()
        collector = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.paths.add(self.path)
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Quiet: the test looks at what arrived."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def resources(self) -> list[dict[str, str]]:
        return [
            {each.key: each.value.string_value for each in part.resource.attributes}
            for request in self.requests
            for part in request.resource_spans
        ]

    def traces(self) -> dict[str, list[Span]]:
        """Spans by trace id."""
        traces = defaultdict(list)
        for request in self.requests:
            for part in request.resource_spans:
                for scope in part.scope_spans:
                    for span in scope.spans:
                        traces[span.trace_id.hex()].append(span)
        return traces


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever, args=(0.02,))
    thread.start()
    yield collector
    collector.server.shutdown()
    thread.join()
    collector.server.server_close()


def attribute(span: Span, key: str) -> str:
    return next((each.value.string_value for each in span.attributes if each.key == key), "")


def up(folder, collector: Collector, **environment: str) -> dict:
    done = Kubeloop(folder).run(
        "up", "--once", "--json", "-f", WEB, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_pods_trace_arrives_as_one_tree_with_its_reconcile_linked(tmp_path, collector):
    document = up(tmp_path, collector)
    traces = collector.traces()
    assert collector.paths == {"/v1/traces"}
    assert {each["service.name"] for each in collector.resources()} == {"kubeloop"}
    assert document["pods"]
    pods = {pod["traceId"]: pod for pod in document["pods"]}
    for trace_id, pod in pods.items():
        spans = {span.span_id: span for span in traces[trace_id]}
        assert len(spans) == len(traces[trace_id])
        (root,) = [span for span in spans.values() if not span.parent_span_id]
        assert attribute(root, "k8s.pod.name") == pod["name"]
        for span in spans.values():
            parent = spans.get(span.parent_span_id, root)
            assert span is root or span.parent_span_id in spans
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.start_time_unix_nano <= span.end_time_unix_nano <= parent.end_time_unix_nano
        names = " ".join(span.name for span in spans.values())
        for part in ("create", "queue", "attempt", "filter", "score", "bind"):
            assert part in names
        reconciles = {link.trace_id.hex() for span in spans.values() for link in span.links}
        assert reconciles
        assert reconciles <= traces.keys() - pods.keys(), "a link leads to a reconcile that was not exported"


def test_with_the_sampler_off_nothing_is_sent_and_the_pods_run_all_the_same(tmp_path, collector):
    document = up(tmp_path, collector, OTEL_TRACES_SAMPLER="always_off")
    assert document["pods"]
    assert all(pod["ready"] for pod in document["pods"])
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
