"""Context that the process passes to the scheduler, in addition to informers and configuration."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import Clock
from kubeloop.kube.events.event_recorder import EventSink
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.scheduler.metrics import NO_METRICS, SchedulerMetrics
from kubeloop.tracing.recording.pod_group_recorder import PodGroupRecorder
from kubeloop.tracing.recording.pod_recorder import PodRecorder


class SchedulerContext(msgspec.Struct, frozen=True):
    """Interfaces to the outside: the API server, time, randomness, events, traces and metrics.

    recorder_for: the event recorder of a profile, by its scheduler name; the same one for each call. group_traces: None
    if traces of pod groups are not recorded. turn_ended: called after attempts and the bind requests of their pods;
    others may wait.
    """

    client: ApiClient
    clock: Clock
    rng: random.Random
    recorder_for: Callable[[str], EventSink]
    traces: PodRecorder
    metrics: SchedulerMetrics = NO_METRICS
    feature_gates: FeatureGates = DEFAULT_FEATURE_GATES
    group_traces: PodGroupRecorder | None = None
    turn_ended: Callable[[], None] = lambda: None
