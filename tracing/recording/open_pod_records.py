"""Open pod records: those of pods whose trace has not ended, how they end, and their copies in the journal.

requested --follow--> followed --finish--> passed to `on_finished`
    |                    |
    +--create_failed, and not observed for FAILED_CREATE_SECONDS--> passed to `on_finished`
    +--evict, drop-------+--> passed to `on_evicted`
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from kubeloop.kube.clock import Clock
from kubeloop.kube.objects.api_types import Pod
from kubeloop.tracing.spans.pod_group_record import PodGroupRecord
from kubeloop.tracing.spans.pod_record import MAX_FACTS, Gap, PodRecord, Wait

MAX_OPEN: Final = 100_000  # records; the record of a pending pod takes about 2 KB
MAX_TOTAL_FACTS: Final = 1_000_000  # of all open records, about 200 bytes each
MIN_FACTS: Final = 24  # limit per record that holds even if MAX_TOTAL_FACTS is exceeded
FAILED_CREATE_SECONDS: Final = 10.0  # a pod whose create has lost its response is shown by the watch within this time
BIND_RESPONSE_SECONDS: Final = 60.0  # after which a pod that was observed bound is finished without a bind response
MAX_SAVED_PER_SWEEP: Final = 1_000  # some 10 ms
MAX_COMPARED_PER_SWEEP: Final = 20_000


class OpenRecordStore(Protocol):
    """Persistent store of open records, so that the next process can continue them after a crash."""

    def save(self, record: PodRecord | PodGroupRecord) -> None:
        """Store this state of the record, replacing the previous one."""
        ...

    def delivered(self, keys: list[str]) -> None:
        """Delete records, by their traceparents."""
        ...


class OpenPodRecords:
    """The open records of one process.

    requested          by traceparent: the UID of the pod is not known yet
    followed           by UID, oldest first
    failed             time of the failed create (ns) by traceparent, of requested pods, in order
    awaiting_response  end of the trace (ns) by UID, of pods that are bound while the response to the bind is missing
    store              has copies of the records, so that the next process can continue them after a crash; or None
    max_facts          limit for each record, so that all together stay below MAX_TOTAL_FACTS
    """

    def __init__(
        self,
        *,
        clock: Clock,
        on_finished: Callable[[PodRecord], None] = lambda record: None,
        on_evicted: Callable[[PodRecord], None] = lambda record: None,
        until_ready: bool = False,
        store: OpenRecordStore | None = None,
    ) -> None:
        """`on_finished` receives each finished record, `on_evicted` each record dropped because of MAX_OPEN."""
        self.requested: dict[str, PodRecord] = {}
        self.followed: dict[str, PodRecord] = {}
        self.failed: dict[str, int] = {}
        self.awaiting_response: dict[str, int] = {}
        self.max_facts = MAX_FACTS
        self.until_ready = until_ready
        self.now_ns = clock.time_ns
        self.on_finished = on_finished
        self._on_evicted = on_evicted
        self.store = store
        self._to_save: Iterator[PodRecord] | None = None  # rest of the current pass over all open records

    def all(self) -> Iterable[PodRecord]:
        """Iterate over open records. Do not await while iterating."""
        yield from self.requested.values()
        yield from self.followed.values()

    def count(self) -> int:
        return len(self.requested) + len(self.followed)

    def get(self, uid: str) -> PodRecord | None:
        return self.followed.get(uid)

    def save(self, record: PodRecord) -> None:
        """Save a record now: if this process is killed and the pod is deleted or bound, only the store has it."""
        if self.store is not None:
            self.store.save(record)

    def request(self, record: PodRecord) -> None:
        """Add the record of a create request; drop the oldest record if there are more than MAX_OPEN."""
        self.requested[record.traceparent] = record
        if self.store is not None:
            self.store.save(record)
        if len(self.requested) + len(self.followed) > MAX_OPEN:
            self._evict()

    def follow(self, record: PodRecord, pod: Pod) -> None:
        """Move the record of a create request to the followed pods, and set what the request did not show."""
        del self.requested[record.traceparent]
        if self.failed:
            self.failed.pop(record.traceparent, None)
        metadata, group = pod.metadata, pod.spec.scheduling_group
        record.name, record.uid = metadata.name, metadata.uid
        record.template_hash = metadata.labels.get("pod-template-hash", "")
        if group is not None:
            record.set_group(group)
        self.followed[record.uid] = record
        if self.store is not None:
            self.store.save(record)

    def finish(self, uid: str, record: PodRecord, outcome: str, end_ns: int, reason: str = "") -> None:
        del self.followed[uid]
        if self.awaiting_response:
            self.awaiting_response.pop(uid, None)
        record.outcome, record.end_ns = outcome, end_ns
        if reason:
            record.reason = reason
        self.on_finished(record)

    def finish_bound(self, uid: str, record: PodRecord, end_ns: int) -> None:
        """Finish the record of a pod that has reached the end of its trace: bound, ready or terminated."""
        if not self.until_ready:
            self.finish(uid, record, "bound", end_ns)
        elif record.conditions_ns and "Ready" in record.conditions_ns:
            self.finish(uid, record, "ready", end_ns)
        elif record.end_phase == "Succeeded":
            self.finish(uid, record, "completed", end_ns)
        else:
            self.finish(uid, record, "failed", end_ns, "containers failed")

    def evict_surplus(self) -> None:
        """Drop the oldest record if there are more than MAX_OPEN."""
        if len(self.requested) + len(self.followed) > MAX_OPEN:
            self._evict()

    def make_room(self) -> PodRecord | None:
        """Drop the oldest open record if there are MAX_OPEN, and return it."""
        return self._evict() if self.count() >= MAX_OPEN else None

    def drop(self, record: PodRecord) -> None:
        """Drop the record of a pod: its trace does not end."""
        self.followed.pop(record.uid, None)
        self.awaiting_response.pop(record.uid, None)
        if self.store is not None:
            self.store.delivered([record.traceparent])
        self._on_evicted(record)

    def awaits_timeout(self) -> bool:
        """Return True if time alone gives sweep() something to do."""
        return bool(self.failed or self.awaiting_response)

    def sweep(self) -> None:
        """Finish records whose wait timed out (a pod after a failed create, a response to a bind), and save changes."""
        now_ns = self.now_ns()
        for traceparent, since_ns in [*self.failed.items()]:
            if now_ns - since_ns < FAILED_CREATE_SECONDS * 1e9:
                break
            del self.failed[traceparent]
            record = self.requested.pop(traceparent)
            record.finish("create failed", record.create_end_ns, record.create_error)
            self.on_finished(record)
        for uid, since_ns in [*self.awaiting_response.items()]:
            if now_ns - since_ns < BIND_RESPONSE_SECONDS * 1e9:
                break
            self.finish_bound(uid, self.followed[uid], since_ns)
        self.max_facts = max(MIN_FACTS, min(MAX_FACTS, MAX_TOTAL_FACTS // (self.count() + 1)))
        if self.store is not None:
            self._save_some(self.store)

    def start_leading(self) -> None:
        """Start recording as the leader: what the previous leader did with the pods is not known."""
        now_ns = self.now_ns()
        for record in self.followed.values():
            if record.bound_ns or not record.observed_ns:
                continue
            waits = [fact for fact in record.facts if type(fact) is Wait]
            record.facts = [Gap(record.observed_ns, now_ns, "another kubeloop process was the leader")]
            if waits:
                record.facts.append(Wait(now_ns, waits[-1].queue, waits[-1].reason))
            record.journaled_facts = min(record.journaled_facts, 0)

    def check(self) -> None:
        assert self.failed.keys() <= self.requested.keys()
        assert self.awaiting_response.keys() <= self.followed.keys()
        assert all(record.outcome == "" for record in self.all())

    def _save_some(self, store: OpenRecordStore) -> None:
        """Save changed records, at most MAX_SAVED_PER_SWEEP; the next sweep continues."""
        if self._to_save is None:
            self._to_save = iter([*self.all()])
        remaining = MAX_SAVED_PER_SWEEP
        for record in itertools.islice(self._to_save, MAX_COMPARED_PER_SWEEP):
            if not (record.outcome or (record.is_journaled and record.journaled_facts == len(record.facts))):
                store.save(record)
                remaining -= 1
                if not remaining:
                    return
        if operator.length_hint(self._to_save) == 0:
            self._to_save = None

    def _evict(self) -> PodRecord:
        """Drop the oldest record, and return it."""
        if self.followed:
            record = next(iter(self.followed.values()))
        else:
            traceparent = next(iter(self.requested))
            record = self.requested.pop(traceparent)
            self.failed.pop(traceparent, None)
        self.drop(record)
        return record
