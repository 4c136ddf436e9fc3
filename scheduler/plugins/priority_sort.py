"""PrioritySort: orders pods by descending priority, then by queueing time. Source: plugins/queuesort of v1.36."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.config.plugin_args import NoArgs

if TYPE_CHECKING:
    from kubeloop.scheduler.api.queued_pod import QueuedPodInfo


class PrioritySort:
    name = "PrioritySort"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        pass

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int, int]:
        return -(queued.pod.spec.priority or 0), queued.timestamp_ns
