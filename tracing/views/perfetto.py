"""Traces as Chrome trace events, for ui.perfetto.dev, chrome://tracing and Speedscope.

A process per owner of pods and a thread per pod give one track per pod, on which its spans nest. Pod groups, reconciles
and apply commands are in other processes, a thread per trace. Format: "Trace Event Format" of the Chromium
project, JSON object form.
Imports this folder only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubeloop.tracing.views.phases import KEYS, phase_index
from kubeloop.tracing.views.pod_lines import APPLY, POD_GROUP_ROOT, owners_of, pod_span
from kubeloop.tracing.views.span_titles import title


def to_perfetto(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Convert trace documents to the JSON object. Times are microseconds since the first span, with three decimals.

    Microseconds since the epoch with three decimals would exceed a double's precision; otherData.startTimeUnixNano has
    the time of the first span.
    """
    traces = [document for document in documents if document["spans"]]
    origin_ns = min((span["start"] for document in traces for span in document["spans"]), default=0)
    tracks = _Tracks()
    events: list[dict[str, Any]] = []
    for document in sorted(traces, key=lambda document: document["spans"][0]["start"]):
        events += _events(document, origin_ns, tracks)
    return {
        "displayTimeUnit": "ms",
        "otherData": {"writer": "kubeloop", "startTimeUnixNano": str(origin_ns)},
        "traceEvents": [*tracks.metadata(), *events],
    }


class _Tracks:
    """Processes and threads by name, numbered from 1 in order of appearance."""

    def __init__(self) -> None:
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[int, str], int] = {}
        self._names: dict[tuple[int, str], str] = {}

    def track(self, process: str, key: str, name: str) -> tuple[int, int]:
        pid = self._processes.setdefault(process, len(self._processes) + 1)
        tid = self._threads.setdefault((pid, key), len(self._threads) + 1)
        self._names[(pid, key)] = name
        return pid, tid

    def metadata(self) -> Iterator[dict[str, Any]]:
        for process, pid in self._processes.items():
            yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": process}}
            yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
        for (pid, key), tid in self._threads.items():
            name = self._names[(pid, key)]
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def _events(document: Mapping[str, Any], origin_ns: int, tracks: _Tracks) -> Iterator[dict[str, Any]]:
    spans = document["spans"]
    pod = pod_span(document)
    root = pod or spans[0]
    attributes = root["attributes"]
    if pod is not None:
        namespace, name = attributes.get("k8s.namespace.name", ""), attributes.get("k8s.pod.name", "")
        owner = next(iter(owners_of(attributes)), "pods without an owner")
        process, thread = f"{namespace} {owner}".strip(), name or "never created"
    elif root["name"] == POD_GROUP_ROOT:
        process = f"{attributes.get('k8s.namespace.name', '')} pod groups".strip()
        thread = str(attributes.get("kubeloop.pod_group.name", ""))
    elif root["name"] == APPLY:
        process, thread = APPLY, title(root)
    else:
        controller = str(attributes.get("kubeloop.controller", "")) or root.get("service", "other")
        process, thread = f"reconcile {controller}", str(attributes.get("kubeloop.key", controller))
    # a thread per trace: reconciles of one controller overlap, but events on one track must nest
    pid, tid = tracks.track(process, document["traceId"], thread)
    for span, start_ns, end_ns in _nested(spans):
        yield {
            "ph": "X",
            "name": title(span),
            "cat": KEYS[phase_index(span["name"])] if span is not pod else "pod",
            "pid": pid,
            "tid": tid,
            "ts": (start_ns - origin_ns) / 1000,
            "dur": (end_ns - start_ns) / 1000,
            "args": _arguments(document, span),
        }
        for event in span.get("events", ()):
            yield {
                "ph": "i",
                "s": "t",
                "name": event["name"],
                "cat": "event",
                "pid": pid,
                "tid": tid,
                "ts": max(0, event["time"] - origin_ns) / 1000,
                "args": dict(event.get("attributes", {})),
            }


def _nested(spans: list[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int, int]]:
    """Return spans with the times to draw: parents first, siblings cut so that they do not overlap.

    Slices on one track must nest. If a span starts before its previous sibling ended (the watch event came before the
    response to the create request), the sibling ends there.
    """
    ids = {span["spanId"] for span in spans}
    children: dict[str, list[Mapping[str, Any]]] = {}
    for span in spans:
        children.setdefault(span["parentSpanId"] if span["parentSpanId"] in ids else "", []).append(span)
    drawn: list[tuple[Mapping[str, Any], int, int]] = []

    pending = [("", 0, max((span["end"] for span in spans), default=0))]
    while pending:
        parent_id, lowest, highest = pending.pop()
        siblings = sorted(children.get(parent_id, []), key=lambda span: (span["start"], span["end"]))
        for index, span in enumerate(siblings):
            after = siblings[index + 1] if index + 1 < len(siblings) else None
            start = min(max(span["start"], lowest), highest)
            end = max(start, min(span["end"], highest if after is None else max(after["start"], start), highest))
            drawn.append((span, start, end))
            pending.append((span["spanId"], start, end))
    return sorted(drawn, key=lambda span_times: span_times[1])  # stable: a parent stays before a child of equal start


def _arguments(document: Mapping[str, Any], span: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {"trace_id": document["traceId"], "span_id": span["spanId"], **span["attributes"]}
    if span["status"].get("code") == "ERROR":
        arguments["error"] = span["status"].get("message", "failed")
    for number, link in enumerate(span.get("links", ())):
        arguments[f"link.{number}"] = f"{link['traceId']}/{link['spanId']}"
    return arguments
