"""Attempt: one try to schedule one pod, from its pop to its binding or its return to the queue."""

from __future__ import annotations

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.framework.runtime import Framework
from kubeloop.tracing.spans.pod_record import AttemptFacts, Phase


class Attempt:
    """Passed from the scheduling cycle to the binding cycle.

    queued: the pod as it was popped. pod_info: the same pod; once assumed, with its node. framework: of the pod's
    profile. state: what plugins store. facts, reserve (the run of the Reserve plugins): for the trace; not changed any
    more once the trace has them. start_ns: by the clock. node: the name of the node on which the pod is assumed; ""
    before.
    """

    __slots__ = ("facts", "framework", "node", "pod_info", "queued", "reserve", "start_ns", "state")

    def __init__(
        self, framework: Framework, queued: QueuedPodInfo, start_ns: int = 0, *, measured: bool = False
    ) -> None:
        """measured: the duration of each plugin call is reported."""
        self.framework = framework
        self.queued = queued
        self.pod_info = queued.info
        self.state = CycleState(measured=measured)
        self.facts = AttemptFacts(result="error")
        self.reserve: Phase | None = None
        self.start_ns = start_ns
        self.node = ""
