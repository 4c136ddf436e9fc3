"""Restored pod records: open records of a terminated process, until the informer shows their pods or has synced."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.values.times import epoch_ns, time_plus
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.spans.pod_record import Gap, PodRecord

_NOT_RUNNING = "kubeloop was not running"


class RestoredPodRecords:
    """Open records of terminated processes whose pods have not been observed yet."""

    def __init__(self, records: OpenPodRecords, recovered: Iterable[tuple[PodRecord, int]] = ()) -> None:
        """`recovered`: records of the journal, and until when the process that has terminated followed the pod (ns)."""
        self._by_key = {record.uid or record.traceparent: (record, until_ns) for record, until_ns in recovered}
        self._records = records

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_key

    def continue_record(self, traceparent: str, pod: Pod) -> PodRecord | None:
        """Remove and return the record of the pod, None if there is none.

        Events in between are derived from the pod as far as possible.
        """
        key = pod.metadata.uid if pod.metadata.uid in self._by_key else traceparent
        if key not in self._by_key:
            return None
        record, until_ns = self._by_key.pop(key)
        now_ns = self._records.now_ns()
        record.set_pod(pod)
        record.continued_ns = now_ns
        record.bind_in_flight = False
        if record.create_start_ns and not record.create_end_ns:
            record.create_end_ns = max(record.create_start_ns, until_ns)
        observed_ns = now_ns
        if pod.spec.node_name and not record.bound_ns:
            record.node = pod.spec.node_name
            observed_ns = record.bound_ns = max(until_ns, min(now_ns, true_since_ns(pod, "PodScheduled") or now_ns))
        elif record.bound_ns:
            observed_ns = until_ns
        if not record.observed_ns:
            record.observed_ns = observed_ns
        if observed_ns > until_ns:
            record.add(Gap(until_ns, observed_ns, _NOT_RUNNING), self._records.max_facts)
        return record

    def continue_observed(self, uid: str) -> PodRecord | None:
        """Remove and return the record of a pod that kubeloop only observes, None if there is none."""
        record, until_ns = self._by_key.pop(uid, (None, 0))
        if record is None or record.milestones is None:
            return None
        record.continued_ns = self._records.now_ns()
        record.milestones.add_missed(until_ns, record.continued_ns, _NOT_RUNNING)
        return record

    def informer_synced(self) -> None:
        """Finish records of pods that the informer did not deliver: they were deleted."""
        now_ns = self._records.now_ns()
        restored, self._by_key = self._by_key, {}
        for record, until_ns in restored.values():
            if record.bound_ns and not self._records.until_ready:
                record.finish("bound", record.bound_ns)
            elif record.uid:
                if record.milestones is not None:
                    record.milestones.add_missed(until_ns, now_ns, _NOT_RUNNING)
                    record.close_phases(now_ns)
                    record.end_source, record.end_uncertainty_ns = "arrival", now_ns - until_ns
                else:
                    record.add(Gap(until_ns, now_ns, _NOT_RUNNING))
                record.finish("deleted", now_ns, "deleted while kubeloop was not running")
            else:
                record.create_error = record.create_error or "kubeloop ended before the response"
                record.create_end_ns = record.create_end_ns or max(until_ns, record.start_ns)
                record.finish("create failed", record.create_end_ns, record.create_error)
            self._records.on_finished(record)


def true_since_ns(pod: Pod, condition: str) -> int | None:
    """Return when the condition became true (ns), at the latest; None if it is not true."""
    for pod_condition in pod.status.conditions:
        if pod_condition.type == condition and pod_condition.status == "True":
            return second_end_ns(pod_condition.last_transition_time)
    return None


def second_end_ns(moment: datetime | None) -> int | None:
    """Return the end of a moment's second (ns): timestamps of the API have whole seconds."""
    return epoch_ns(time_plus(moment.replace(microsecond=0), 1)) if moment is not None else None
