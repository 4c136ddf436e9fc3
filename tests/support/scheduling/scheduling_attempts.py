"""Scheduling attempts on the nodes of a PluginCluster, without a running scheduler."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api_calls.background_calls import BackgroundCalls
from kubeloop.scheduler.api_calls.status_patches import StatusPatches
from kubeloop.scheduler.attempts.algorithm import Algorithm
from kubeloop.scheduler.attempts.attempt_steps import AttemptSteps
from kubeloop.scheduler.attempts.failed_attempts import FailedAttempts
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue
from support.scheduling.plugin_cluster import PluginCluster


class SchedulingAttempts:
    """Queue, algorithm, steps and failures of attempts. hint_maps: those of the queue."""

    def __init__(
        self, cluster: PluginCluster, clock: Any, hint_maps: Mapping[str, QueueingHintMap] | None = None
    ) -> None:
        self.cluster = cluster
        client: Any = cluster.client
        self.context = SchedulerContext(client, clock, random.Random(1), lambda _: cluster.recorder, cluster.traces)
        self.queue = SchedulingQueue(
            sort_key=lambda queued: queued.key,
            hint_maps=hint_maps or {},
            pre_enqueue={},
            nominator=cluster.nominator,
            now_ns=lambda: 10**9,
        )
        self.algorithm = Algorithm(
            cluster.snapshot,
            percentage_of_nodes_to_score=None,
            tie_break="random",
            extenders=(),
            rng=random.Random(1),
            now_ns=clock.time_ns,
        )
        self.patches = StatusPatches(client, clock, BackgroundCalls(self.context))
        self.failed = FailedAttempts(
            self.context, self.queue, cluster.cache, cluster.snapshot, cluster.pods, self.patches
        )
        self.steps = AttemptSteps(self.context, self.queue, cluster.cache, self.algorithm, self.failed)

    def add(self, pod: Pod) -> None:
        """Create a pending pod."""
        self.cluster.pods.put(pod.key, pod)
        self.queue.add(pod)

    def pop(self, pod: Pod) -> QueuedPodInfo:
        """Create a pending pod whose attempt begins."""
        self.add(pod)
        queued = self.queue.pop()
        assert queued is not None
        return queued

    def queue_of(self, name: str) -> str:
        entry = self.queue.get(f"default/{name}")
        return entry[0] if entry is not None else ""

    @property
    def messages(self) -> list[str]:
        """The messages of the recorded events."""
        return [event.message for event in self.cluster.recorder.events]
