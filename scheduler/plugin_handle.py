"""The plugin handle of one profile (see api.handle.Handle)."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from kubeloop.kube.client.api_client import Client
from kubeloop.kube.clock import Clock
from kubeloop.kube.event_recorder import EventSink
from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.dry_run import DryRuns
from kubeloop.scheduler.api.extender import Extender
from kubeloop.scheduler.api.handle import PodNominator, WaitingPod
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.dry_run import NodeDryRuns
from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.scheduler.metrics_protocol import SchedulerMetrics
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue
from kubeloop.tracing.recording.pod_recorder import PodRecorder

Spawn = Callable[[Coroutine[Any, Any, None], str], None]


class PluginHandle:
    """`framework` and `queue` are set after construction: plugins are created before both."""

    framework: Framework
    queue: SchedulingQueue

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        listers: Listers,
        client: Client,
        clock: Clock,
        rng: random.Random,
        recorder: EventSink,
        traces: PodRecorder,
        extenders: Sequence[Extender],
        metrics: SchedulerMetrics | None,
        spawn: Spawn,
    ) -> None:
        self.snapshot = snapshot
        self.listers = listers
        self.client = client
        self.clock = clock
        self.rng = rng
        self.recorder = recorder
        self.traces = traces
        self.extenders = extenders
        self.metrics = metrics
        self._spawn = spawn

    @property
    def nominator(self) -> PodNominator:
        return self.queue.nominator

    def run_filters_with_nominated_pods(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return self.framework.run_filters_with_nominated_pods(state, pod, node)

    def dry_runs(self, state: CycleState, pod: PodInfo) -> DryRuns:
        return NodeDryRuns(self.framework, state, pod)

    def run_add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        return self.framework.run_add_pod(state, pod, added, node)

    def run_remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        return self.framework.run_remove_pod(state, pod, removed, node)

    def waiting_pod(self, uid: str) -> WaitingPod | None:
        """Return a pod that waits on permit, to be allowed or rejected; None if it does not wait."""
        return self.framework.waiting_pod(uid)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._spawn(work, name)

    def activate(self, pods: Iterable[Pod]) -> None:
        self.queue.activate(pods)
