"""Console exporter."""

from __future__ import annotations

import json

from kubeloop.tracing.export.console import ConsoleExporter
from kubeloop.tracing.spans.trace import Link, Span, SpanEvent, Trace


def test_spans_are_printed_as_json(capsys):
    link = Link(f"00-{'1' * 32}-{'2' * 16}-01", "cause")
    root = Span(
        "pod", "a" * 16, 1, 2, attributes={"k": "v"}, links=(link,), events=(SpanEvent("e", 1),), error="failed"
    )
    exporter = ConsoleExporter({"service.name": "kubeloop"})
    exporter.export(Trace("b" * 32, (root,)), "key")
    printed = json.loads(capsys.readouterr().out)
    assert (printed["name"], printed["attributes"]) == ("pod", {"k": "v"})
    assert printed["status"] == {"status_code": "ERROR", "description": "failed"}
    assert printed["resource"]["attributes"]["service.name"] == "kubeloop"
    assert exporter.delivered() == ["key"]
    assert exporter.delivered() == []
    exporter.shut_down()
