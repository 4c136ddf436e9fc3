"""SchedulingGates: keeps pods with spec.schedulingGates out of the queue. Source: plugins/schedulinggates of v1.36."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.events import POD, ActionType, ClusterEventWithHint, Hint
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import on_event, unresolvable
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.config.plugin_args import NoArgs


class SchedulingGates:
    name = "SchedulingGates"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        pass

    def pre_enqueue(self, pod: Pod) -> Status | None:
        gates = pod.spec.scheduling_gates
        if not gates:
            return None
        return unresolvable(self.name, f"waiting for scheduling gates: [{' '.join(gate.name for gate in gates)}]")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (on_event(POD, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, self._after_update),)

    def _after_update(self, pod: Pod, old: Any, new: Any) -> Hint:
        """Return QUEUE for an update of this pod itself; gates of other pods do not matter."""
        return Hint.QUEUE if new is not None and new.metadata.uid == pod.metadata.uid else Hint.SKIP
