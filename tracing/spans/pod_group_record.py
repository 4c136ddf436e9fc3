"""Record of one pod group: arrival of its pods, scheduling attempts, permit, and binding.

The recorder appends facts; `pod_group_spans` builds spans from them. Imports msgspec and this folder only.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kubeloop.tracing.spans.pod_record import Gap
from kubeloop.tracing.spans.traceparent import TraceContext

MAX_FACTS = 150  # of a longer history the first and last facts are stored
MAX_PLACEMENTS = 50  # recorded of one attempt; further ones are only counted
ATTEMPTS_WITH_PLACEMENTS = 10  # the last ones: the journal writes the whole record after each attempt
MAX_LINKED_PODS = 128  # OTEL_SPAN_LINK_COUNT_LIMIT's default


class PlacementFacts(msgspec.Struct, gc=False, array_like=True):
    """Evaluation of one placement: the nodes of one topology domain. Times in ns.

    feasible_pods: number of the group's pods for which it has a node. message: why it was rejected; "": it was not.
    unfit_pod: name of the first pod for which it has no node; "" if there is none.
    """

    name: str
    start_ns: int
    end_ns: int
    feasible_pods: int = 0
    message: str = ""
    unfit_pod: str = ""


class PodGroupAttemptFacts(msgspec.Struct, gc=False, array_like=True):
    """Result of one scheduling attempt of a group.

    result     "preempting": the group waits until preempted pods have ended
    pods       number of pods in the attempt; scheduled_pods: those that go on to binding
    message    reason for failure
    placement  name of the selected placement; "" without topology constraints
    placements those evaluated, the first MAX_PLACEMENTS of placement_count; none without topology constraints
    victims    number of preempted pods
    unfit_pod  name of the first pod without a node, in the first placement; "" if there is none
    preemption why preemption does not make room for that pod; "" if it was not tried
    """

    result: Literal["scheduled", "unschedulable", "preempting", "error"]
    pods: int = 0
    scheduled_pods: int = 0
    message: str = ""
    placement: str = ""
    placements: list[PlacementFacts] = []
    placement_count: int = 0
    victims: int = 0
    unfit_pod: str = ""
    preemption: str = ""


class PodGroupAttempt(msgspec.Struct, gc=False, array_like=True, tag=0):
    """Scheduling attempt of a group, and what followed from it until the next one. Times in ns; 0: not yet, or never.

    permit_start_ns   a pod began to wait on permit; permit_end_ns: the last wait ended
    permit_rejections number of pods rejected on permit, such as after a timeout; permit_error: the last message
    bound_pods        number of pods bound, the last one at bound_ns
    """

    start_ns: int
    number: int
    end_ns: int = 0
    facts: PodGroupAttemptFacts | None = None
    permit_start_ns: int = 0
    permit_end_ns: int = 0
    permit_rejections: int = 0
    permit_error: str = ""
    bound_pods: int = 0
    bound_ns: int = 0

    @property
    def has_failed(self) -> bool:
        return self.permit_rejections > 0 or (self.facts is not None and self.facts.result != "scheduled")


PodGroupFact = PodGroupAttempt | Gap


class PodGroupRecord(msgspec.Struct, gc=False, eq=False, array_like=True):
    """Record of one pod group, from the arrival of its first unbound pod until all of its pods are bound.

    Times in ns since the epoch; 0: unknown or not yet. min_count: of the gang; 0: the group is not a gang. quorum_ns:
    when as many pods existed. complete_ns: when the last pod was bound, while no other one waits. pods: the largest
    number of pods that existed at one time.
    """

    context: TraceContext  # of the root span
    start_ns: int
    traceparent: str = ""  # the same as `context`, as text
    namespace: str = ""
    name: str = ""
    uid: str = ""
    workload: str = ""
    min_count: int = 0
    quorum_ns: int = 0
    complete_ns: int = 0
    end_ns: int = 0
    continued_ns: int = 0  # when this process continued the trace of an earlier process
    outcome: Literal["", "bound", "deleted"] = ""  # "" while the record is open
    reason: str = ""  # set if the outcome is "deleted"
    tail_rule: str = ""  # tail rule that selected the trace although the sampler did not
    pods: int = 0
    bound_pods: int = 0
    attempts: int = 0
    facts: list[PodGroupFact] = []  # in order of their start
    pod_links: list[str] = []  # traceparents of its pods, at most MAX_LINKED_PODS

    def __post_init__(self) -> None:
        self.traceparent = self.traceparent or self.context.traceparent

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def last_attempt(self) -> PodGroupAttempt | None:
        """The last attempt, unless a gap follows it: what happens after that does not result from it."""
        last = self.facts[-1] if self.facts else None
        return last if type(last) is PodGroupAttempt else None

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    def add(self, fact: PodGroupFact) -> None:
        """Append a fact. Beyond MAX_FACTS, a gap replaces the middle third; older attempts lose their placements."""
        facts = self.facts
        facts.append(fact)
        if len(facts) > ATTEMPTS_WITH_PLACEMENTS:
            older = facts[-ATTEMPTS_WITH_PLACEMENTS - 1]
            if type(older) is PodGroupAttempt and older.facts is not None:
                older.facts.placements = []
        if len(facts) > MAX_FACTS:
            first, last = MAX_FACTS // 3, 2 * (MAX_FACTS // 3)
            reason = "only the first and last attempts are recorded"
            facts[first:last] = [Gap(facts[first].start_ns, facts[last].start_ns, reason, dropped=True)]

    def finish(self, outcome: Literal["bound", "deleted"], end_ns: int, reason: str = "") -> None:
        self.outcome, self.end_ns, self.reason = outcome, max(self.start_ns, end_ns), reason
