"""Recorders that record nothing, for tests that are not about traces."""

from __future__ import annotations

import random

from kubeloop.kube.clock import SystemClock
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.pod_recorder import PodRecorder
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from kubeloop.tracing.recording.restored_pod_records import RestoredPodRecords
from kubeloop.tracing.recording.top_owner_lookup import TopOwnerLookup, controller_is_top_owner
from kubeloop.tracing.sampling.samplers import DISABLED_SAMPLER


class DisabledPodRecorder(PodRecorder):
    def __init__(self) -> None:
        records = OpenPodRecords(clock=SystemClock())
        owners = TopOwnerLookup(controller_is_top_owner)
        super().__init__(records, RestoredPodRecords(records), owners, rng=random.Random(0), sampler=DISABLED_SAMPLER)


class DisabledReconcileRecorder(ReconcileRecorder):
    def __init__(self) -> None:
        super().__init__(clock=SystemClock(), rng=random.Random(0), sampler=DISABLED_SAMPLER)
