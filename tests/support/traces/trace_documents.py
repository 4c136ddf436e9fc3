"""Trace documents and pod lines for tests of views."""

from __future__ import annotations

import io

from rich.console import Console

from kubeloop.tracing.views.phases import KEYS
from kubeloop.tracing.views.pod_lines import PodLine

NS = 1_000_000  # nanoseconds in a millisecond


def span(name, start_ms, end_ms, *, parent="root", span_id="", error="", **attributes):
    return {
        "name": name,
        "spanId": span_id or f"{abs(hash((name, start_ms))):016x}"[:16],
        "parentSpanId": parent,
        "start": start_ms * NS,
        "end": end_ms * NS,
        "kind": "internal",
        "attributes": {key.replace("__", "."): value for key, value in attributes.items()},
        "links": [],
        "status": {"code": "ERROR", "message": error} if error else {"code": "OK"},
    }


def document(*children, outcome="bound", end_ms=100, name="web-1", error="", start_ms=0, **attributes):
    root = span(
        f"pod shop/{name}",
        start_ms,
        end_ms,
        parent="",
        span_id="root",
        error=error,
        **{
            "k8s__namespace__name": "shop",
            "k8s__pod__name": name,
            "k8s__pod__uid": f"uid-{name}",
            "kubeloop__outcome": outcome,
            **attributes,
        },
    )
    return {"traceId": "ab" * 16, "spans": [root, *children]}


def phases(line):
    return [(KEYS[phase], offset // 1000, duration // 1000) for phase, offset, duration in line.triples()]


def pods(count=200):
    return [
        PodLine(
            key=f"uid-{number}",
            trace_id=f"{number + 1:032x}",
            namespace="shop",
            name=f"web-{number:03}",
            start_us=1_000_000 + number * 1000,
            duration_us=10_000 + number * 100,
            stage="bound" if number else "unschedulable",
            segments=[0, 0, 4000, 2, 4000, 6000 + number * 100],
            reason="" if number else "0/3 nodes are available",
            is_open=not number,
        )
        for number in range(count)
    ]


def rendered(view, width=120):
    console = Console(file=io.StringIO(), width=width)
    console.print(view)
    return console.file.getvalue()


def apply_document(name="web", namespace="shop"):
    """Return the trace of `kubeloop up -f` with one object."""
    request = {"kubeloop__kind": "Deployment", "kubeloop__name": name, "kubeloop__outcome": "created"}
    scope = {"k8s__namespace__name": namespace} if namespace else {}
    root = span("apply", 0, 20, parent="", span_id="root", kubeloop__objects=1)
    return {"traceId": "cd" * 16, "spans": [root, span("apply", 1, 19, **request, **scope)]}
