"""Recorder of pod groups: one trace per group, from its first unbound pod until all of its pods are bound.

    absent --unbound pod and PodGroup observed--> open --all bound for LINGER_SECONDS, or deleted--> finished
                                                  ^  |
              restored, of a killed process ------+  +-- absent when the informers have synced --> finished: deleted

A group whose pods come later, or are created anew, gets a further trace. Calls about groups without a record, which the
sampler leaves out, are ignored.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Literal

from kubeloop.kube.clock import Clock
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import is_finished
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.tracing.recording.open_pod_records import OpenRecordStore
from kubeloop.tracing.recording.pod_recorder import PodRecorder
from kubeloop.tracing.sampling.samplers import Sampler
from kubeloop.tracing.spans.pod_group_record import (
    MAX_LINKED_PODS,
    PodGroupAttempt,
    PodGroupAttemptFacts,
    PodGroupRecord,
)
from kubeloop.tracing.spans.pod_record import Gap

MAX_OPEN = 10_000  # records; beyond, the oldest is dropped
MAX_ENDED = 10_000  # UIDs of groups that had a trace
LINGER_SECONDS = 1.0  # a group without a quorum may get its next pod after the last one was bound


class _Group:
    """State of one group: its PodGroup, None if it has not been observed, and its pods that have not ended.

    unbound: when each pod was first observed (ns), by UID. record: None if no trace is open.
    """

    __slots__ = ("bound", "pod_group", "record", "unbound")

    def __init__(self) -> None:
        self.pod_group: PodGroup | None = None
        self.unbound: dict[str, int] = {}
        self.bound: set[str] = set()
        self.record: PodGroupRecord | None = None


class PodGroupRecorder:
    """Records events of pod groups. Methods are synchronous and do not raise. Keys are "namespace/name"."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        pods: PodRecorder,
        sampler: Sampler = Sampler(),  # noqa: B008  # immutable
        on_finished: Callable[[PodGroupRecord], None] = lambda record: None,
        on_evicted: Callable[[PodGroupRecord], None] = lambda record: None,
        store: OpenRecordStore | None = None,
        recovered: Iterable[tuple[PodGroupRecord, int]] = (),
    ) -> None:
        """
        pods       has the traces of the groups' pods, which are linked with those of the groups
        store      stores the open records
        recovered  open records of a terminated process, and until when it followed the group (ns); call
                   informer_synced() after all groups and pods have been observed
        """
        self._time_ns = clock.time_ns
        self._rng = rng
        self._pods = pods
        self._sampler = sampler
        self._on_finished = on_finished
        self._on_evicted = on_evicted
        self._store = store
        self._groups: dict[str, _Group] = {}  # by key: of each PodGroup, and of each group that pods name
        self._open: dict[str, PodGroupRecord] = {}  # by traceparent, oldest first
        self._restored = {record.uid: (record, until_ns) for record, until_ns in recovered}
        self._ended: dict[str, None] = {}  # UIDs, oldest first
        self._is_synced = not self._restored  # False: the informers have not delivered all objects of restored groups

    # --- informer events -------------------------------------------------------------------------------------------

    def group_observed(self, pod_group: PodGroup) -> None:
        group = self._groups.setdefault(pod_group.key, _Group())
        if group.pod_group is not None and group.pod_group.metadata.uid != pod_group.metadata.uid:
            self._end(group, "deleted", self._time_ns(), "deleted and created again")
        group.pod_group = pod_group
        self._update(group, self._time_ns())

    def group_deleted(self, pod_group: PodGroup) -> None:
        group = self._groups.get(pod_group.key)
        if group is None:
            return
        if group.record is not None and group.record.complete_ns:
            self._end(group, "bound", group.record.complete_ns)
        else:
            self._end(group, "deleted", self._time_ns(), "deleted before all of its pods were bound")
        group.pod_group = None
        self._discard_empty(pod_group.key, group)

    def pod_observed(self, pod: Pod) -> None:
        """Record the state of a pod of a group that this process schedules. Call it after PodRecorder.observed()."""
        key = group_key(pod)
        uid, now_ns = pod.metadata.uid, self._time_ns()
        if is_finished(pod):
            self.pod_deleted(pod)
            return
        group = self._groups.setdefault(key, _Group())
        if not pod.spec.node_name:
            if uid in group.unbound:
                return
            group.unbound[uid] = now_ns
            if group.record is not None:
                group.record.complete_ns = 0
                self._link(group.record, uid)
        elif uid in group.bound:
            return
        else:
            group.unbound.pop(uid, None)
            group.bound.add(uid)
            if group.record is not None:
                group.record.bound_pods += 1
                attempt = group.record.last_attempt
                if attempt is not None:
                    attempt.bound_pods, attempt.bound_ns = attempt.bound_pods + 1, now_ns
        self._update(group, now_ns)

    def pod_deleted(self, pod: Pod) -> None:
        """Record that a pod of a group was deleted, or has ended."""
        key = group_key(pod)
        group = self._groups.get(key)
        if group is None:
            return
        group.unbound.pop(pod.metadata.uid, None)
        group.bound.discard(pod.metadata.uid)
        record = group.record
        if record is not None and not record.complete_ns and not group.unbound and not group.bound:
            self._end(group, "deleted", self._time_ns(), "its pods were deleted or ended before all of them were bound")
        self._update(group, self._time_ns())
        self._discard_empty(key, group)

    # --- scheduler -------------------------------------------------------------------------------------------------

    def attempt_started(self, key: str) -> None:
        record = self._record(key)
        if record is not None:
            record.attempts += 1
            record.add(PodGroupAttempt(self._time_ns(), record.attempts))

    def attempt_finished(self, key: str, facts: PodGroupAttemptFacts) -> None:
        record = self._record(key)
        attempt = record.last_attempt if record is not None else None
        if record is None or attempt is None or attempt.facts is not None:
            return
        attempt.end_ns, attempt.facts = self._time_ns(), facts
        self._save(record)

    def permit_started(self, pod: Pod) -> None:
        """Record that a pod of a group waits on permit."""
        record = self._record(group_key(pod))
        attempt = record.last_attempt if record is not None else None
        if attempt is not None:
            attempt.permit_start_ns = attempt.permit_start_ns or self._time_ns()
            attempt.permit_end_ns = 0

    def permit_finished(self, pod: Pod, error: str | None = None) -> None:
        """Record the end of the wait; `error` if the pod was rejected, such as after a timeout."""
        record = self._record(group_key(pod))
        attempt = record.last_attempt if record is not None else None
        if record is None or attempt is None:
            return
        attempt.permit_end_ns = self._time_ns()
        if error is not None:
            attempt.permit_rejections += 1
            attempt.permit_error = error
            self._save(record)

    def _record(self, key: str) -> PodGroupRecord | None:
        group = self._groups.get(key)
        return group.record if group is not None else None

    # --- end of traces ---------------------------------------------------------------------------------------------

    def has_open(self) -> bool:
        """Return True if there are open records, which sweep() may finish."""
        return bool(self._open)

    def sweep(self) -> None:
        """Finish the records of groups whose pods have all been bound for LINGER_SECONDS."""
        if not self._is_synced:
            return
        bound_before_ns = self._time_ns() - round(LINGER_SECONDS * 1e9)
        for record in [*self._open.values()]:
            if 0 < record.complete_ns <= bound_before_ns:
                self._end(self._groups[record.key], "bound", record.complete_ns)

    def select(self, traceparent: str, tail_rule: str) -> None:
        """Export the trace of an open group because a tail rule has selected one of its pods."""
        record = self._open.get(traceparent)
        if record is not None and not record.context.sampled:
            record.tail_rule = record.tail_rule or tail_rule

    def open_records(self) -> Iterable[PodGroupRecord]:
        """Iterate over open records. Do not await while iterating."""
        yield from self._open.values()

    # --- records of other processes --------------------------------------------------------------------------------

    def informer_synced(self) -> None:
        """Finish restored records of groups that the informer did not deliver: they were deleted."""
        self._is_synced = True
        now_ns = self._time_ns()
        restored, self._restored = self._restored, {}
        for record, until_ns in restored.values():
            record.add(Gap(until_ns, now_ns, _NOT_RUNNING))
            record.finish("deleted", now_ns, "deleted while kubeloop was not running")
            self._on_finished(record)

    def start_leading(self) -> None:
        """Start recording as the leader: what the previous leader did with the groups is not known."""
        now_ns = self._time_ns()
        for record in self._open.values():
            if not record.complete_ns:
                record.facts = [Gap(record.start_ns, now_ns, "another kubeloop process was the leader")]

    def check(self) -> None:
        assert {id(group.record) for group in self._groups.values() if group.record} == set(
            map(id, self._open.values())
        )
        assert all(not record.outcome for record in self._open.values())
        assert all(not group.unbound.keys() & group.bound for group in self._groups.values())

    # ---------------------------------------------------------------------------------------------------------------

    def _update(self, group: _Group, now_ns: int) -> None:
        """Open the group's record if it has none and an unbound pod; then bring its counts up to date."""
        pod_group, record = group.pod_group, group.record
        if pod_group is None:
            return
        if record is None:
            record = group.record = self._open_record(group, pod_group)
            if record is None:
                return
        record.pods = max(record.pods, len(group.unbound) + len(group.bound))
        if not record.quorum_ns and record.pods >= record.min_count:
            record.quorum_ns = now_ns
        if not record.complete_ns and not group.unbound and record.bound_pods >= max(1, record.min_count):
            record.complete_ns = now_ns

    def _open_record(self, group: _Group, pod_group: PodGroup) -> PodGroupRecord | None:
        uid, gang = pod_group.metadata.uid, pod_group.spec.scheduling_policy.gang
        now_ns = self._time_ns()
        record, until_ns = self._restored.pop(uid, (None, 0))
        if record is not None:
            record.continued_ns = now_ns
            record.add(Gap(until_ns, now_ns, _NOT_RUNNING))
        elif not group.unbound or not self._sampler.starts_traces:
            return None
        else:
            # All processes give a group's first trace the same ID, so that links of pods that an earlier process
            # exported stay valid.
            is_first = uid not in self._ended and not _is_scheduled(pod_group)
            context = self._sampler.root_context(random.Random(f"pod group {uid}") if is_first else self._rng)
            if not self._sampler.records(context.sampled):
                return None
            record = PodGroupRecord(context, min(group.unbound.values()))
            record.namespace, record.name, record.uid = pod_group.metadata.namespace, pod_group.metadata.name, uid
            template = pod_group.spec.pod_group_template_ref
            if template is not None and template.workload is not None:
                record.workload = template.workload.workload_name
            record.min_count = gang.min_count if gang is not None else 0
        record.bound_pods = len(group.bound)
        self._open[record.traceparent] = record
        for pod_uid in group.unbound:
            self._link(record, pod_uid)
        self._save(record)
        if len(self._open) > MAX_OPEN:
            self._evict()
        return record

    def _link(self, record: PodGroupRecord, uid: str) -> None:
        """Link the traces of the group and of one of its pods."""
        pod_record = self._pods.link_group(uid, record.traceparent)
        if pod_record is None or len(record.pod_links) >= MAX_LINKED_PODS:
            return
        if pod_record.traceparent not in record.pod_links:  # a restored record has the links of its pods
            record.pod_links.append(pod_record.traceparent)

    def _save(self, record: PodGroupRecord) -> None:
        if self._store is not None:
            self._store.save(record)

    def _end(self, group: _Group, outcome: Literal["bound", "deleted"], end_ns: int, reason: str = "") -> None:
        record, group.record = group.record, None
        if record is None:
            return
        del self._open[record.traceparent]
        self._ended[record.uid] = None
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        record.finish(outcome, end_ns, reason)
        self._on_finished(record)

    def _evict(self) -> None:
        """Drop the oldest record."""
        record = self._open.pop(next(iter(self._open)))
        self._groups[record.key].record = None
        if self._store is not None:
            self._store.delivered([record.traceparent])
        self._on_evicted(record)

    def _discard_empty(self, key: str, group: _Group) -> None:
        if group.pod_group is None and not group.unbound and not group.bound:
            self._groups.pop(key, None)


_NOT_RUNNING = "kubeloop was not running"


def group_key(pod: Pod) -> str:
    """Return the key of the group of a pod that has one."""
    assert pod.spec.scheduling_group is not None
    return f"{pod.metadata.namespace}/{pod.spec.scheduling_group.pod_group_name}"


def _is_scheduled(pod_group: PodGroup) -> bool:
    return any(
        condition.type == "PodGroupScheduled" and condition.status == "True"
        for condition in pod_group.status.conditions
    )
