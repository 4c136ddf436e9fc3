"""What was noted about one pod, and the tree of spans that it makes (docs/tracing.md, "The trace of a pod").

Whatever is missing or late, the tree is one, every child lies within its parent's time, and the children of the root
cover its time: where no note explains a stretch, what lies around it does. May import `kubeloop.kube` and this room.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kubeloop.kube.objects.api_types import Pod
from kubeloop.tracing.spans.traceparent import TraceContext

QUEUED, ATTEMPT_STARTED, ATTEMPT_FINISHED, PHASE_STARTED, PHASE_FINISHED, GAP, UNFOLLOWED = range(7)

Fact = tuple[int, int, Any, Any]
"""What, when (ns), and two details: queue and reason; attempt number; AttemptFacts; phase and node; phase and error;
of UNFOLLOWED the end (ns) and why."""

MAX_FACTS = 600  # some 100 attempts; a pod that waits for weeks keeps its first and its last ones

TERMINATING = "terminating"  # in place of a queue: the pod waits for its end

# What a kubelet does with a bound pod, and the condition that says it is done.
START_PHASES = (
    ("PodReadyToStartContainers", "start sandbox"),
    ("Initialized", "start init"),
    ("ContainersReady", "start containers"),
    ("Ready", "start readiness"),
)
COMPLETE_OUTCOMES = ("bound", "ready", "completed")  # with any other the root's status is an error


class AttemptFacts(msgspec.Struct, gc=False, array_like=True):
    """What one scheduling attempt came to. Pairs of ns are start and end; None: that step did not run.

    nodes, feasible   nodes looked at, and those that passed the filters
    rejections        number of nodes that a plugin rejected, by plugin
    scores            (node, total), best first; only the first few are kept in the trace
    node              chosen; "" if none
    message           why not, as in the FailedScheduling event
    nominated_node    where preemption makes room
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
    """Notes about one pod. Times in ns since the epoch, 0: not known, or not yet.

    A Struct without garbage collection: there are tens of thousands of them, and none refers to another.
    """

    context: TraceContext  # of the root span
    start_ns: int
    traceparent: str = ""  # the same as `context`, as text
    parent_span_id: str = ""  # of the root span: somebody else's, who created the pod
    link: str = ""  # to the reconcile that created the pod
    namespace: str = ""
    name: str = ""
    uid: str = ""
    node: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    template_hash: str = ""
    scheduler: str = ""  # whose pod it is, if not this process'
    create_start_ns: int = 0
    create_end_ns: int = 0
    create_error: str = ""
    continued_ns: int = 0  # when this process took the trace over from one before it
    observed_ns: int = 0
    bound_ns: int = 0
    end_ns: int = 0
    ended_as: str = ""  # phase of a pod that ended before it was ready
    terminating: bool = False  # marked for deletion before it was bound
    until_ready: bool = False  # the trace goes on when the pod is bound
    conditions_ns: dict[str, int] = {}  # of START_PHASES, since when they hold
    bind_in_flight: bool = False
    outcome: str = ""  # see docs/tracing.md; "" while it is open
    reason: str = ""  # of an outcome that is none of COMPLETE_OUTCOMES
    tail_rule: str = ""  # the tail rule that keeps it although the sampler did not choose it
    reconstructed: bool = False  # from what stands on the object, not from what was seen
    facts: list[Fact] = []  # in the order in which they were noted
    saved_facts: int = -1  # so many of them the journal has, and ...
    is_saved: bool = False  # ... the other fields as they are

    def __post_init__(self) -> None:
        self.traceparent = self.traceparent or self.context.traceparent

    def add(self, fact: Fact, limit: int = MAX_FACTS) -> None:
        """Beyond `limit` facts the middle ones give way."""
        facts = self.facts
        facts.append(fact)
        if len(facts) > limit:
            first, dropped = limit // 3, limit // 3
            gap_at_ns = facts[first][1]
            facts[first : first + dropped] = [(GAP, gap_at_ns, None, None)]
            self.saved_facts = min(self.saved_facts, first)

    def log_context(self) -> str:
        return self.traceparent

    def describe(self, pod: Pod) -> None:
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
        """Of the Deployment above the ReplicaSet, "" if there is none. Told from the name and the hash in it."""
        suffix = f"-{self.template_hash}"
        if self.owner_kind == "ReplicaSet" and self.template_hash and self.owner_name.endswith(suffix):
            return self.owner_name.removesuffix(suffix)
        return ""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns
