"""The collector of traces of a run."""

from __future__ import annotations

from collections import defaultdict

from kubeloop.tracing.spans.trace import Trace


class TraceCollector:
    """Collector of all processes. While it is `dead`, exported traces wait in their process.

    by_pod: IDs of the received traces by the UID of their pod.
    """

    def __init__(self) -> None:
        self.dead = False
        self.by_pod: defaultdict[str, set[str]] = defaultdict(set)

    def receive(self, trace: Trace) -> None:
        uid = trace.root.attributes.get("k8s.pod.uid")
        if uid:
            self.by_pod[str(uid)].add(trace.trace_id)


class ProcessExporter:
    """Exporter of one process, which ends with it. Implements TraceExporter."""

    def __init__(self, collector: TraceCollector) -> None:
        self._collector = collector
        self._waiting: list[tuple[Trace, str]] = []
        self._delivered: list[str] = []
        self.has_ended = False

    def end(self) -> None:
        """Send nothing any more."""
        self.has_ended = True

    def export(self, trace: Trace, key: str = "") -> None:
        self._waiting.append((trace, key))
        self._send()

    def delivered(self) -> list[str]:
        self._send()
        keys, self._delivered = self._delivered, []
        return keys

    def shut_down(self, within_seconds: float) -> None:
        self._send()

    def _send(self) -> None:
        if self._collector.dead or self.has_ended:
            return
        for trace, key in self._waiting:
            self._collector.receive(trace)
            if key:
                self._delivered.append(key)
        self._waiting.clear()
