"""QueuedPodInfo: a pod in the scheduling queue and its scheduling attempts so far."""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.events import ClusterEvent
from kubeloop.scheduler.cache.node_info import PodInfo


class QueuedPodInfo:
    """A pod in the scheduling queue. Times are nanoseconds of the queue's clock.

    timestamp_ns: when the pod was added, or returned to the queue after an attempt. initial_attempt_ns: when it first
    became active; 0 before. attempts: how often it was popped. unschedulable_count: attempts that ended in a
    rejection; consecutive_errors_count: attempts that ended in an error since the last one without; both determine the
    backoff. backoff_expiration_ns: 0 until computed. unschedulable_plugins, pending_plugins: the plugins that rejected
    the last attempt; both empty after an error. gating_plugin: the PreEnqueue plugin that rejected the pod, or "".
    spec_class: number of the pod's class (pod_classes.SpecClasses); -1 until computed.
    """

    __slots__ = (
        "attempts",
        "backoff_expiration_ns",
        "consecutive_errors_count",
        "gating_events",
        "gating_plugin",
        "info",
        "initial_attempt_ns",
        "pending_plugins",
        "spec_class",
        "timestamp_ns",
        "unschedulable_count",
        "unschedulable_plugins",
        "was_flushed_from_unschedulable",
    )

    def __init__(self, info: PodInfo, timestamp_ns: int) -> None:
        self.info = info
        self.timestamp_ns = timestamp_ns
        self.initial_attempt_ns = 0
        self.attempts = 0
        self.unschedulable_count = 0
        self.consecutive_errors_count = 0
        self.backoff_expiration_ns = 0
        self.unschedulable_plugins: set[str] = set()
        self.pending_plugins: set[str] = set()
        self.gating_plugin = ""
        self.gating_events: Sequence[ClusterEvent] = ()
        self.was_flushed_from_unschedulable = False
        self.spec_class = -1

    @property
    def pod(self) -> Pod:
        return self.info.pod

    @property
    def key(self) -> str:
        return self.info.key

    @property
    def uid(self) -> str:
        return self.info.uid

    @property
    def gated(self) -> bool:
        return self.gating_plugin != ""

    @property
    def rejectors(self) -> set[str]:
        return self.unschedulable_plugins | self.pending_plugins

    def update(self, pod: Pod) -> None:
        """Replace the pod by another version of it."""
        old = self.info.pod
        self.info = self.info.with_pod(pod)
        if (
            pod.metadata.labels != old.metadata.labels
            or pod.spec != old.spec
            or pod.metadata.owner_references != old.metadata.owner_references
        ):
            self.spec_class = -1

    def __repr__(self) -> str:
        return f"QueuedPodInfo({self.key}, attempts={self.attempts})"
