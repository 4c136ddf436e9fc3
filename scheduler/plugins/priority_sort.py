"""PrioritySort: orders pods by descending priority, then by queueing time. Source: plugins/queuesort of v1.36."""

from __future__ import annotations

from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.config.plugin_args import NoArgs


class PrioritySort:
    name = "PrioritySort"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        pass

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int, int]:
        return -(queued.pod.spec.priority or 0), queued.timestamp_ns
