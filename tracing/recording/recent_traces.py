"""Most recent traces, in memory, for `kubeloop trace`. Stored as records; spans are built on demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kubeloop.kube.clock import Clock
from kubeloop.tracing.spans.pod_group_record import PodGroupRecord
from kubeloop.tracing.spans.pod_group_spans import pod_group_trace
from kubeloop.tracing.spans.pod_record import PodRecord
from kubeloop.tracing.spans.pod_spans import pod_trace
from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.trace import Trace

MAX_PODS = 10_000  # some 20 MB
MAX_RECONCILES = 1_000
MAX_GROUPS = 2_000  # some KB each; up to 50 KB after many attempts


class RecentTraces:
    """The newest traces of pods and reconciles. Traces are returned as documents (Trace.document), or None."""

    def __init__(
        self,
        *,
        clock: Clock,
        open_records: Callable[[], Iterable[PodRecord]] = lambda: (),
        open_groups: Callable[[], Iterable[PodGroupRecord]] = lambda: (),
    ) -> None:
        """`open_records`, `open_groups`: records of pods and groups whose trace has not ended; they are included."""
        self._clock = clock
        self._open_records = open_records
        self._open_groups = open_groups
        self._pods: deque[PodRecord] = deque(maxlen=MAX_PODS)  # oldest first
        self._by_uid: dict[str, PodRecord] = {}  # the same by UID (or, never created, by traceparent), for readers
        self._indexed: PodRecord | None = None  # the newest one in _by_uid
        self.add = self._pods.append  # a call per pod
        self._reconciles: deque[ReconcileRecord | Trace] = deque(maxlen=MAX_RECONCILES)
        self._groups: deque[PodGroupRecord] = deque(maxlen=MAX_GROUPS)

    def add_reconcile(self, reconcile: ReconcileRecord | Trace) -> None:
        """Add a finished reconcile, or the trace of apply requests."""
        self._reconciles.append(reconcile)

    def add_group(self, record: PodGroupRecord) -> None:
        self._groups.append(record)

    def sweep(self) -> None:
        """Release the records that are only in an outdated index. Call it about every second."""
        if self._by_uid and self._pods[-1] is not self._indexed:
            self._by_uid, self._indexed = {}, None

    def finished(self, uid: str) -> PodRecord | None:
        """Return the record of the pod with this UID if its trace has ended."""
        return self._index().get(uid)

    def find_pod_trace(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the trace of the pod with this name, the newest if there are several."""
        newest = None
        for record in self._all():
            if record.name == name and record.namespace == namespace:
                newest = record
        return self._document(newest)

    def find_trace(self, trace_id: str) -> dict[str, Any] | None:
        match = next((record for record in self._all() if record.trace_id == trace_id), None)
        if match is not None:
            return self._document(match)
        return self.find_linked_trace(trace_id)

    def find_linked_trace(self, trace_id: str) -> dict[str, Any] | None:
        """Return the trace of a reconcile or of a pod group."""
        for reconcile in self._reconciles:
            if reconcile.trace_id == trace_id:
                return reconcile.trace().document()
        for group in (*self._groups, *self._open_groups()):
            if group.context.trace_id == trace_id:
                return pod_group_trace(group, now_ns=self._clock.time_ns()).document()
        return None

    def slowest(self, namespace: str = "", owner: str = "") -> dict[str, Any] | None:
        """Return the longest trace of a pod, in this namespace and of this owner ("statefulset/db") if they are set."""
        now_ns = self._clock.time_ns()
        records = (
            record
            for record in self._all()
            if namespace in ("", record.namespace) and (not owner or owner in record.owners)
        )
        return self._document(
            max(records, key=lambda record: (record.end_ns or now_ns) - record.start_ns, default=None)
        )

    def records(self) -> Iterator[PodRecord]:
        """Iterate over finished records, oldest first, then open ones. Do not await while iterating."""
        yield from self._all()

    def document(self, record: PodRecord) -> dict[str, Any]:
        """Return the document of one of records(); an open one ends now."""
        return pod_trace(record, now_ns=self._clock.time_ns()).document()

    def reconciles(self, key: str = "") -> list[dict[str, Any]]:
        """Return reconciles of the object with this key ("namespace/name"), or of any object, oldest first."""
        return [record.trace().document() for record in self._reconciles if key in ("", record.key)]

    def _all(self) -> Iterator[PodRecord]:
        yield from self._index().values()
        yield from self._open_records()

    def _index(self) -> dict[str, PodRecord]:
        """Return the finished records by UID, oldest first: of two with one UID, the newer one."""
        if self._pods and self._pods[-1] is not self._indexed:
            self._indexed = self._pods[-1]
            self._by_uid = {record.uid or record.traceparent: record for record in self._pods}
        return self._by_uid

    def _document(self, record: PodRecord | None) -> dict[str, Any] | None:
        return None if record is None else self.document(record)
