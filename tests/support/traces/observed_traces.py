"""An observer of pods whose traces are checked."""

from __future__ import annotations

from types import SimpleNamespace

from kubeloop.tracing.observation.clock_skew import ClockSkew
from kubeloop.tracing.observation.pod_observer import PodObserver, TopOwner
from kubeloop.tracing.recording.observed_pod_recorder import ObservedPodRecorder
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.restored_pod_records import RestoredPodRecords
from kubeloop.tracing.sampling.samplers import Sampler
from kubeloop.tracing.spans.pod_spans import pod_trace
from support.traces.observed_pods import START_NS
from support.traces.span_tree import check_spans


def check_trace(record, now_ns=0):
    """Return the trace of a record, after checking that its spans form a tree and cover the root."""
    trace = pod_trace(record, now_ns=now_ns)
    check_spans(trace)
    root = trace.root
    until_ns, covered_ns = root.start_ns, 0
    for span in sorted(trace.spans[1:], key=lambda span: span.start_ns):
        covered_ns += max(0, span.end_ns - max(until_ns, span.start_ns))
        until_ns = max(until_ns, span.end_ns)
        assert min(span.attributes.get("kubeloop.start.uncertainty_ms", 0), 0) == 0
        assert min(span.attributes.get("kubeloop.end.uncertainty_ms", 0), 0) == 0
    assert covered_ns >= 0.99 * (root.end_ns - root.start_ns)
    return trace


class ObservedTraces:
    """An observer, and the records that it has finished. `ns` is the time of its clock."""

    def __init__(self, *, until_ready=True, has_events=True, sampler=None, restored=(), top_owner=None):
        self.ns = START_NS
        self.finished = []
        self.reconstructed = []
        clock = SimpleNamespace(time_ns=lambda: self.ns)
        self.records = OpenPodRecords(clock=clock, on_finished=self.finished.append, until_ready=until_ready)
        restored = RestoredPodRecords(self.records, restored)
        self.skew = ClockSkew()
        self.observer = PodObserver(
            self.records,
            ObservedPodRecorder(self.records, restored, sampler=sampler or Sampler()),
            until_ready=until_ready,
            skew=self.skew,
            has_events=has_events,
            top_owner=top_owner or (lambda namespace, owner: TopOwner("Deployment", "web")),
            on_reconstructed=self.reconstructed.append,
        )

    def pass_seconds(self, seconds):
        self.ns += round(seconds * 1e9)
        self.observer.sweep()

    def trace(self):
        """Return the trace of the only finished record."""
        self.observer.check()
        self.records.check()
        [record] = self.finished
        return check_trace(record)

    def open_trace(self, seconds):
        """Return the trace of the only open record, `seconds` after START."""
        [record] = self.records.all()
        return check_trace(record, START_NS + round(seconds * 1e9))


def spans_of(trace):
    """Return name, start and end (seconds since START) of the spans below the root."""
    return [
        (span.name, round((span.start_ns - START_NS) / 1e9, 2), round((span.end_ns - START_NS) / 1e9, 2))
        for span in sorted(trace.spans[1:], key=lambda span: (span.start_ns, span.end_ns))
    ]


def span_named(trace, name, container=""):
    """Return the only span with this name, and of this container if it is set."""
    [span] = [
        span
        for span in trace.spans[1:]
        if span.name == name and container in ("", span.attributes.get("k8s.container.name"))
    ]
    return span
