"""Record of one pod: timestamps and facts that the recorder appends, and from which `pod_spans` builds spans."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kubeloop.kube.objects.api_types import Pod
from kubeloop.tracing.spans.traceparent import TraceContext

QUEUED, ATTEMPT_STARTED, ATTEMPT_FINISHED, PHASE_STARTED, PHASE_FINISHED, GAP, UNFOLLOWED = range(7)

Fact = tuple[int, int, Any, Any]
"""Kind, time (ns), and two details by kind.

    QUEUED            queue, reason
    ATTEMPT_STARTED   attempt number, None
    ATTEMPT_FINISHED  AttemptFacts, None
    PHASE_STARTED     phase, node
    PHASE_FINISHED    phase, error
    UNFOLLOWED        end (ns), reason
"""

MAX_FACTS = 600  # some 100 attempts; of a longer history the first and last facts are stored

TERMINATING = "terminating"  # in place of a queue name: the pod is marked for deletion

# Conditions that the kubelet sets on a bound pod, and the span that each one ends.
START_PHASES = (
    ("PodReadyToStartContainers", "start sandbox"),
    ("Initialized", "start init"),
    ("ContainersReady", "start containers"),
    ("Ready", "start readiness"),
)
COMPLETE_OUTCOMES = ("bound", "ready", "completed")  # any other outcome sets the root span's status to error


class AttemptFacts(msgspec.Struct, gc=False, array_like=True):
    """Result of one scheduling attempt. Pairs of ns are start and end; None: the step did not run.

    nodes, feasible   number of nodes evaluated, and of those that passed the filters
    rejections        number of nodes rejected, by plugin
    scores            (node, total), best first; the trace holds only the first few
    node              selected node; "" if none
    message           reason for failure, as in the FailedScheduling event
    nominated_node    node on which preemption frees resources
    """

    result: Literal["scheduled", "unschedulable", "error"]
    nodes: int = 0
    feasible: int = 0
    rejections: dict[str, int] = {}
    scores: list[tuple[str, int]] = []
    pre_filter_ns: tuple[int, int] | None = None
    filter_ns: tuple[int, int] | None = None
    post_filter_ns: tuple[int, int] | None = None
    score_ns: tuple[int, int] | None = None
    node: str = ""
    message: str = ""
    nominated_node: str = ""
    victims: int = 0


class PodRecord(msgspec.Struct, gc=False, eq=False, array_like=True):
    """Record of one pod. Times in ns since the epoch; 0: unknown or not yet.

    A Struct outside of garbage collection: there are tens of thousands, and no record refers to another.
    """

    context: TraceContext  # of the root span
    start_ns: int
    traceparent: str = ""  # the same as `context`, as text
    parent_span_id: str = ""  # parent of the root span, from another service that created the pod
    link: str = ""  # traceparent of the reconcile that created the pod
    namespace: str = ""
    name: str = ""
    uid: str = ""
    node: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    template_hash: str = ""
    scheduler: str = ""  # schedulerName, if no scheduler of this process schedules the pod
    create_start_ns: int = 0
    create_end_ns: int = 0
    create_error: str = ""
    continued_ns: int = 0  # when this process continued the trace of an earlier process
    observed_ns: int = 0
    bound_ns: int = 0
    end_ns: int = 0
    end_phase: str = ""  # status.phase of a pod that ended before it was ready
    terminating: bool = False  # marked for deletion before it was bound
    until_ready: bool = False  # the trace continues after binding, until the pod is ready
    conditions_ns: dict[str, int] = {}  # transition times of the conditions in START_PHASES that are true
    bind_in_flight: bool = False
    outcome: str = ""  # see docs/tracing.md; "" while the record is open
    reason: str = ""  # set if outcome is not one of COMPLETE_OUTCOMES
    tail_rule: str = ""  # tail rule that selected the trace although the sampler did not
    reconstructed: bool = False  # built from the object's fields, not from observed events
    facts: list[Fact] = []  # in order of recording
    journaled_facts: int = -1  # number of facts that the journal holds
    is_journaled: bool = False  # whether the journal holds the other fields as they are

    def __post_init__(self) -> None:
        self.traceparent = self.traceparent or self.context.traceparent

    def add(self, fact: Fact, limit: int = MAX_FACTS) -> None:
        """Append a fact. Beyond `limit` facts, a GAP replaces the middle third."""
        facts = self.facts
        facts.append(fact)
        if len(facts) > limit:
            first, dropped = limit // 3, limit // 3
            gap_at_ns = facts[first][1]
            facts[first : first + dropped] = [(GAP, gap_at_ns, None, None)]
            self.journaled_facts = min(self.journaled_facts, first)

    def log_context(self) -> str:
        return self.traceparent

    def set_pod(self, pod: Pod) -> None:
        metadata = pod.metadata
        self.namespace, self.name, self.uid = metadata.namespace, metadata.name, metadata.uid
        self.template_hash = metadata.labels.get("pod-template-hash", "")
        for owner in metadata.owner_references:
            if owner.controller:
                self.owner_kind, self.owner_name = owner.kind, owner.name

    def finish(self, outcome: str, end_ns: int, reason: str = "") -> None:
        self.outcome, self.end_ns, self.reason = outcome, end_ns, reason

    @property
    def deployment_name(self) -> str:
        """Name of the Deployment that owns the ReplicaSet, derived from the pod-template-hash; "" if there is none."""
        suffix = f"-{self.template_hash}"
        if self.owner_kind == "ReplicaSet" and self.template_hash and self.owner_name.endswith(suffix):
            return self.owner_name.removesuffix(suffix)
        return ""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns
