"""Observed pod recorder: opens the records of pods that another control plane creates and schedules."""

from __future__ import annotations

import random

from kubeloop.kube.objects.observed_types import ObservedPod
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.restored_pod_records import RestoredPodRecords
from kubeloop.tracing.sampling.samplers import Sampler
from kubeloop.tracing.spans.pod_milestones import PodMilestones
from kubeloop.tracing.spans.pod_record import PodRecord
from kubeloop.tracing.spans.traceparent import TraceContext, parse_traceparent


class ObservedPodRecorder:
    """Opens records of pods that kubeloop only observes. Their milestones and their end are up to PodObserver."""

    def __init__(self, records: OpenPodRecords, restored: RestoredPodRecords, *, sampler: Sampler) -> None:
        self._records = records
        self._restored = restored
        self._sampler = sampler
        self._uid_rng = random.Random(0)  # seeded with the UID of each pod

    def follow(self, pod: ObservedPod, milestones: PodMilestones) -> PodRecord | None:
        """Open the record of a pod, or continue that of an earlier process. None if the sampler leaves the pod out."""
        uid = pod.metadata.uid
        record = self._restored.continue_observed(uid) or self.new_record(pod, milestones)
        if record is None:
            return None
        self._records.followed[uid] = record
        self._records.save(record)
        return record

    def new_record(self, pod: ObservedPod, milestones: PodMilestones) -> PodRecord | None:
        """Create the record of a pod, which is not open yet; None if the sampler leaves the pod out.

        The IDs of its trace are derived from its UID: another process that observes the pod has the same.
        """
        traceparent = pod.metadata.annotations.traceparent
        parent = parse_traceparent(traceparent) if traceparent else None
        if not (self._sampler.starts_traces or (parent is not None and self._sampler.records_traces)):
            return None
        self._uid_rng.seed(pod.metadata.uid)
        context = self._sampler.root_context(self._uid_rng)
        if parent is not None:
            sampled = self._sampler.samples_child(parent.trace_id, parent.sampled)
            context = TraceContext(parent.trace_id, context.span_id, sampled)
        if not self._sampler.records(context.sampled):
            return None
        record = PodRecord(context.traceparent, self._records.now_ns())
        record.parent_span_id = parent.span_id if parent is not None else ""
        record.is_observed, record.milestones = True, milestones
        record.set_observed_pod(pod)
        return record

    def is_restored(self, uid: str) -> bool:
        """Return True if an earlier process followed the pod, and it has not been observed yet."""
        return uid in self._restored

    def informer_synced(self) -> None:
        """Finish the records of pods that earlier processes followed and that the first list lacks."""
        self._restored.informer_synced()
