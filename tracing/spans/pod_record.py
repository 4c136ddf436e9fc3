"""Record of one pod: timestamps and facts that the recorder appends, and from which `pod_spans` builds spans.

A fact is a wait in a queue, a scheduling attempt, a phase of binding, a gap, or a phase of a pod that kubeloop only
observes. `timeline` decides when each one ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kubeloop.kube.objects.api_types import ObjectMeta, OwnerReference, Pod, PodSchedulingGroup
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.tracing.spans.owners import POD_GROUP, deployment_name, owner_text
from kubeloop.tracing.spans.pod_milestones import Edge, EdgeSource, PodMilestones
from kubeloop.tracing.spans.trace import Span
from kubeloop.tracing.spans.traceparent import SAMPLED, TraceContext

if TYPE_CHECKING:  # only `kubeloop observe` needs it
    from kubeloop.kube.objects.observed_types import ObservedOwner, ObservedPod, ObservedPodMeta

MAX_FACTS = 600  # some 100 attempts; of a longer history the first and last facts are stored

MAX_PLUGIN_SPANS = 200  # the later ones of a pod are dropped

TERMINATING = "terminating"  # in place of a queue name: the pod is marked for deletion

# Conditions that the kubelet sets on a bound pod, and the span that each one ends.
START_PHASES = (
    ("PodReadyToStartContainers", "start sandbox"),
    ("Initialized", "start init"),
    ("ContainersReady", "start containers"),
    ("Ready", "start readiness"),
)
_NO_END = Edge(0, 0, "arrival")
COMPLETE_OUTCOMES = ("bound", "ready", "completed")  # any other outcome sets the root span's status to error


class AttemptFacts(msgspec.Struct, gc=False, array_like=True):
    """Result of one scheduling attempt. An end of 0 (ns): the step did not run.

    Numbers and tuples, which Python's garbage collector soon ignores: there are thousands of attempts.

    nodes, feasible   number of nodes evaluated, and of those that passed the filters
    rejections        number of nodes rejected, by plugin; None for no node
    best_nodes        nodes with the highest scores, best first; the trace holds only the first few
    best_totals       their scores
    node              selected node; "" if none
    message           reason for failure, as in the FailedScheduling event
    nominated_node    node on which preemption frees resources
    attributes        those that plugins add to the span of the attempt
    """

    result: Literal["scheduled", "unschedulable", "error"]
    nodes: int = 0
    feasible: int = 0
    rejections: dict[str, int] | None = None
    best_nodes: tuple[str, ...] = ()
    best_totals: tuple[int, ...] = ()
    pre_filter_start_ns: int = 0
    pre_filter_end_ns: int = 0
    filter_start_ns: int = 0
    filter_end_ns: int = 0
    post_filter_start_ns: int = 0
    post_filter_end_ns: int = 0
    score_start_ns: int = 0
    score_end_ns: int = 0
    node: str = ""
    message: str = ""
    nominated_node: str = ""
    victims: int = 0
    attributes: dict[str, int | float] = {}


class Wait(msgspec.Struct, gc=False, array_like=True, tag=0):
    """Wait in a queue, or TERMINATING, until the next wait, attempt or gap. `reason`: the event that moved the pod."""

    start_ns: int
    queue: str
    reason: str = ""

    @property
    def span_name(self) -> str:
        return TERMINATING if self.queue == TERMINATING else f"queue {self.queue}"


class SchedulingAttempt(msgspec.Struct, gc=False, array_like=True, tag=1):
    """Scheduling attempt. end_ns 0, no result: not finished."""

    start_ns: int
    number: int
    end_ns: int = 0
    result: AttemptFacts | None = None


class Phase(msgspec.Struct, gc=False, array_like=True, tag=2):
    """Run of the plugins of one extension point of the binding cycle: reserve, permit, pre-bind or bind.

    end_ns 0: not finished. `error`: None on success.
    """

    start_ns: int
    name: str
    node: str = ""
    end_ns: int = 0
    error: str | None = None


class Gap(msgspec.Struct, gc=False, array_like=True, tag=3):
    """Time without facts: the pod was not followed, or (dropped) facts were dropped because there were too many."""

    start_ns: int
    end_ns: int
    reason: str
    dropped: bool = False


class ObservedPhase(msgspec.Struct, gc=False, array_like=True, tag=4):
    """Phase of a pod that other components create, schedule and run: derived from the pod's states and Events.

    The true time of an edge lies in [time - uncertainty, time]: the timestamps of objects have whole seconds, and an
    arrival is exact but late. `end_ns` 0: the phase has not ended. `name` is the name of its span; `error` sets the
    span's status.
    """

    start_ns: int
    name: str
    end_ns: int = 0
    start_source: EdgeSource = "arrival"
    start_uncertainty_ns: int = 0
    end_source: EdgeSource = "arrival"
    end_uncertainty_ns: int = 0
    attributes: dict[str, str | int | float | bool] = {}  # no lists: msgspec cannot decode them
    error: str | None = None


Fact = Wait | SchedulingAttempt | Phase | Gap | ObservedPhase


class PodRecord(msgspec.Struct, gc=False, eq=False, array_like=True):
    """Record of one pod. Times in ns since the epoch; 0: unknown or not yet.

    A Struct outside of garbage collection: there are tens of thousands, and no record refers to another.
    """

    traceparent: str  # of the root span
    start_ns: int
    namespace: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    link: str = ""  # traceparent of the reconcile that created the pod
    create_start_ns: int = 0
    parent_span_id: str = ""  # parent of the root span, from another service that created the pod
    name: str = ""
    uid: str = ""
    node: str = ""
    template_hash: str = ""
    top_owner_kind: str = ""  # topmost owner, such as CronJob, if it is known; a Deployment only for an observed pod
    top_owner_name: str = ""
    group_name: str = ""  # pod group of the pod, if any
    group_link: str = ""  # traceparent of the group's trace
    scheduler: str = ""  # schedulerName, if no scheduler of this process schedules the pod
    create_end_ns: int = 0
    create_error: str = ""
    continued_ns: int = 0  # when this process continued the trace of an earlier process
    observed_ns: int = 0
    bound_ns: int = 0
    end_ns: int = 0
    end_phase: str = ""  # status.phase of a pod that ended before it was ready
    terminating: bool = False  # marked for deletion before it was bound
    until_ready: bool = False  # the trace continues after binding, until the pod is ready
    conditions_ns: dict[str, int] | None = None  # transition times of the conditions in START_PHASES that are true
    bind_in_flight: bool = False
    outcome: str = ""  # see docs/tracing.md; "" while the record is open
    reason: str = ""  # set if outcome is not one of COMPLETE_OUTCOMES
    tail_rule: str = ""  # tail rule that selected the trace although the sampler did not
    reconstructed: bool = False  # built from the object's fields, not from observed events
    is_observed: bool = False  # derived from watches of a cluster whose control plane is not kubeloop
    facts: list[Fact] = []  # in order of their start
    finished_facts: int = 0  # number of attempts and phases that were finished
    journaled_facts: int = -1  # number of facts that the journal holds as they are
    is_journaled: bool = False  # whether the journal holds the other fields as they are
    milestones: PodMilestones | None = None  # of an observed pod whose trace has not ended; facts are derived from it
    start_uncertainty_ns: int = 0  # of an observed pod: the creation may be earlier by this
    end_uncertainty_ns: int = 0
    end_source: str = ""  # EdgeSource of an observed pod's end; "" while the record is open
    start_sli_ns: int = 0  # duration of the start by the kubelet's definition (phase_times.start_sli_ns); 0: none
    plugin_spans: tuple[Any, ...] = ()  # a Span each, whose attributes msgspec cannot decode; in order of their end

    @property
    def context(self) -> TraceContext:
        """Context of the root span."""
        return TraceContext(self.trace_id, self.span_id, self.is_sampled)

    @property
    def trace_id(self) -> str:
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """ID of the root span."""
        return self.traceparent[36:52]

    @property
    def is_sampled(self) -> bool:
        return self.traceparent.endswith(SAMPLED)

    def add(self, fact: Fact, limit: int = MAX_FACTS) -> None:
        """Append a fact, and drop others if there are more than `limit`."""
        self.facts.append(fact)
        if len(self.facts) > limit:
            self.drop_facts(limit)

    def drop_facts(self, limit: int) -> None:
        """Replace the middle third of `limit` facts by a Gap."""
        facts = self.facts
        first = limit // 3
        last = 2 * first
        reason = "only the first and last attempts are recorded"
        gap = Gap(facts[first].start_ns, facts[last].start_ns, reason, dropped=True)
        facts[first:last] = [gap]
        self.journaled_facts = min(self.journaled_facts, first)

    def add_plugin_span(self, span: Span) -> None:
        """Append a span of a scheduler plugin, unless there are too many."""
        if len(self.plugin_spans) < MAX_PLUGIN_SPANS:
            self.plugin_spans += (span,)
            self.is_journaled = False

    def finish_attempt(self, end_ns: int, result: AttemptFacts) -> None:
        """Finish the last attempt, unless it is finished already."""
        facts = self.facts
        index = len(facts) - 1
        while index >= 0:
            fact = facts[index]
            if type(fact) is SchedulingAttempt:
                if not fact.end_ns:
                    fact.end_ns, fact.result = end_ns, result
                    self.finished_facts += 1
                    if self.journaled_facts > index:  # noqa: PLR1730  # min() takes three times as long
                        self.journaled_facts = index  # the journal has to write it again, and those after it
                return
            index -= 1

    def finish_phase(self, name: str, end_ns: int, error: str | None) -> None:
        """Finish the last phase with this name, unless it is finished already."""
        facts = self.facts
        index = len(facts) - 1
        while index >= 0:
            fact = facts[index]
            if type(fact) is Phase and fact.name == name:
                if not fact.end_ns:
                    fact.end_ns, fact.error = end_ns, error
                    self.finished_facts += 1
                    if self.journaled_facts > index:  # noqa: PLR1730
                        self.journaled_facts = index
                return
            index -= 1

    def close_phases(self, end_ns: int) -> None:
        """Replace the milestones of an observed pod by its phases up to `end_ns`."""
        phases = observed_phases(self)
        self.milestones = None
        for phase in phases:
            if phase.start_ns < end_ns or 0 < phase.end_ns <= end_ns:
                self.add(phase)

    def log_context(self) -> str:
        return self.traceparent

    def set_pod(self, pod: Pod) -> None:
        metadata = pod.metadata
        self._set_pod(metadata, metadata.labels.get("pod-template-hash", ""), controller_of(metadata))
        self.set_group(pod.spec.scheduling_group)

    def set_observed_pod(self, pod: ObservedPod) -> None:
        self._set_pod(pod.metadata, pod.metadata.labels.pod_template_hash, controller_of(pod.metadata))
        self.set_group(pod.spec.scheduling_group)

    def set_group(self, group: PodSchedulingGroup | None) -> None:
        if group is not None:
            self.group_name = group.pod_group_name or ""

    def _set_pod(
        self,
        metadata: ObjectMeta | ObservedPodMeta,
        template_hash: str,
        owner: OwnerReference | ObservedOwner | None,
    ) -> None:
        self.namespace, self.name, self.uid = metadata.namespace, metadata.name, metadata.uid
        self.template_hash = template_hash
        if owner is not None:
            self.owner_kind, self.owner_name = owner.kind, owner.name

    def finish(self, outcome: str, end_ns: int, reason: str = "") -> None:
        self.outcome, self.end_ns, self.reason = outcome, end_ns, reason

    @property
    def deployment_name(self) -> str:
        """Name of the Deployment that owns the ReplicaSet; "" if there is none."""
        return deployment_name(self.owner_kind, self.owner_name, self.template_hash)

    @property
    def owners(self) -> list[str]:
        """Known owners as "deployment/web", the topmost first, then the pod's controller, then its pod group."""
        chain = (*self._owner_chain(), (POD_GROUP, self.group_name))
        return [*dict.fromkeys(owner_text(kind, name) for kind, name in chain if name)]

    @property
    def topmost_owner_kind(self) -> str:
        """Kind of the topmost known owner, such as "Deployment"; "" if there is none."""
        if self.top_owner_name:
            return self.top_owner_kind
        if self.deployment_name:
            return "Deployment"
        return self.owner_kind if self.owner_name else ""

    def _owner_chain(self) -> tuple[tuple[str, str], ...]:
        return (
            (self.top_owner_kind, self.top_owner_name),
            ("Deployment", self.deployment_name),
            (self.owner_kind, self.owner_name),
        )

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


def observed_phases(record: PodRecord) -> list[ObservedPhase]:
    """Derive the phases of an observed pod from its milestones."""
    from kubeloop.tracing.spans.observed_phases import derive_phases  # only `kubeloop observe` needs it

    assert record.milestones is not None
    phases = []
    for phase in derive_phases(record.milestones):
        start, end = phase.start, phase.end or _NO_END
        edges = end.high_ns, start.source, start.uncertainty_ns, end.source, end.uncertainty_ns
        phases.append(ObservedPhase(start.high_ns, phase.name, *edges, phase.attributes, phase.error))
    return phases


def timeline(record: PodRecord, now_ns: int = 0) -> list[tuple[Fact, int, str]]:
    """Return the facts of a record, each with its end (ns) and, for a wait, the event that ended it ("": none).

    A wait ends with the next wait, attempt or gap; an unfinished attempt with the next attempt or gap; an unfinished
    phase with the next gap. Otherwise they end when the pod is bound, with the trace, or, if it is open, at `now_ns`.
    """
    wait_end_ns = attempt_end_ns = phase_end_ns = record.bound_ns or record.end_ns or now_ns
    woken_by = ""
    entries: list[tuple[Fact, int, str]] = []
    facts = record.facts if record.milestones is None else [*record.facts, *observed_phases(record)]
    for fact in reversed(facts):
        if type(fact) is Wait:
            entries.append((fact, wait_end_ns, woken_by))
            wait_end_ns = fact.start_ns
            woken_by = "" if fact.queue == TERMINATING else fact.reason
        elif type(fact) is Phase:
            entries.append((fact, fact.end_ns or phase_end_ns, ""))
        elif type(fact) is SchedulingAttempt:
            entries.append((fact, fact.end_ns or attempt_end_ns, ""))
            wait_end_ns = attempt_end_ns = fact.start_ns
            woken_by = ""
        elif type(fact) is ObservedPhase:
            entries.append((fact, fact.end_ns or record.end_ns or now_ns, ""))
        else:
            assert type(fact) is Gap
            entries.append((fact, fact.end_ns, ""))
            wait_end_ns = attempt_end_ns = phase_end_ns = fact.start_ns
            woken_by = ""
    entries.reverse()
    return entries
