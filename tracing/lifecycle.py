"""The pod lifecycle recorder: one trace per pod, from the create request to the bound pod seen by the informer.

On the hot path a method appends a tuple to a pod's record; spans are built from it when somebody wants to see them
(`pod_record.pod_trace`). A record is open from the create request, or from the first sight of a pod that is not bound:

    requested --created/observed--> followed --bound or deleted--> finished, handed on
        |                                                             ^
        +--create_failed, and not seen for FAILED_CREATE_SECONDS------+

The pods of another process (before a restart, or another creator) are followed from their annotation. May import
`kubeloop.kube` and this room.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable

from kubeloop.kube.clock import Clock, SystemClock
from kubeloop.kube.objects import Pod
from kubeloop.tracing.context import (
    TRACEPARENT_ANNOTATION,
    TraceContext,
    new_span_id,
    new_trace_id,
    parse_traceparent,
)
from kubeloop.tracing.pod_record import (
    ATTEMPT_FINISHED,
    ATTEMPT_STARTED,
    PHASE_FINISHED,
    PHASE_STARTED,
    QUEUED,
    AttemptFacts,
    PodRecord,
)
from kubeloop.tracing.reconcile import ReconcileTraces
from kubeloop.tracing.sampling import NEVER, Sampling

__all__ = ["AttemptFacts", "NoTraces", "PodTraces"]

log = logging.getLogger(__name__)

MAX_OPEN = 100_000  # records; a pending pod's is about 2 KB
FAILED_CREATE_SECONDS = 10.0  # the answer to a create may be lost and the pod be there: the watch shows it by then
UNANSWERED_BIND_SECONDS = 60.0  # after which a pod that was seen bound needs no answer to its bind request any more
_CREATORS = ("ReplicaSet", "ReplicationController")  # kinds whose controllers, being ours, write our root span's id


class PodTraces:
    """Records what happens to pods. Methods are synchronous, cost about a microsecond, and do not raise.

    Times in ns are `now_ns()`'s. Unsampled pods, and pods that are bound when first seen, are not recorded, and every
    call about them is ignored.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        sampling: Sampling = Sampling(),  # noqa: B008  # immutable
        finished: Callable[[PodRecord], None] = lambda record: None,
        max_open: int = MAX_OPEN,
    ) -> None:
        """`finished` is given each record that is complete."""
        self._clock = clock
        self._time_ns = clock.time_ns
        self._rng = rng
        self._sampling = sampling
        self._finished = finished
        self._max_open = max_open
        self._evicted = 0
        self._requested: dict[str, PodRecord] = {}  # by traceparent: the pod's uid is not known yet
        self._followed: dict[str, PodRecord] = {}  # by uid, oldest first
        self._failed: dict[str, int] = {}  # by traceparent, of those requested: since when, in order
        self._awaiting_answer: dict[str, int] = {}  # by uid, of those followed: seen bound since, in order

    def now_ns(self) -> int:
        return self._time_ns()

    # --- creating --------------------------------------------------------------------------------------------------

    def new_traceparent(self) -> str:
        """For a pod about to be created: goes into its annotation and the create request's header. "": no tracing."""
        if not self._sampling.enabled:
            return ""
        trace_id = new_trace_id(self._rng)
        return TraceContext(trace_id, new_span_id(self._rng), self._sampling.begins(trace_id)).traceparent

    def create_requested(
        self,
        traceparent: str,
        *,
        namespace: str,
        owner_kind: str,
        owner_name: str,
        start_ns: int,
        link: str | None = None,
    ) -> None:
        """Call before the request is sent: the watch may be faster than the answer. `link`: of the reconcile's span."""
        context = parse_traceparent(traceparent)
        if context is None or not context.sampled:
            return
        record = PodRecord(context, start_ns)
        record.namespace = namespace
        record.owner_kind, record.owner_name = owner_kind, owner_name
        record.create_start_ns = start_ns
        record.link = link or ""
        self._requested[traceparent] = record
        if len(self._requested) + len(self._followed) > self._max_open:
            self._evict()

    def created(self, traceparent: str, pod: Pod, end_ns: int) -> None:
        record = self._requested.get(traceparent)
        if record is None:
            record = self._followed.get(pod.metadata.uid)  # the watch was faster
        else:
            self._follow(traceparent, record, pod)
        if record is not None and record.context.traceparent == traceparent:
            record.create_end_ns = end_ns

    def create_failed(self, traceparent: str, error: str, end_ns: int) -> None:
        record = self._requested.get(traceparent)
        if record is not None:
            record.create_end_ns, record.create_error = end_ns, error
            self._failed[traceparent] = end_ns

    # --- what the informer shows -----------------------------------------------------------------------------------

    def observed(self, pod: Pod) -> None:
        """The informer delivered this state of the pod."""
        uid = pod.metadata.uid
        record = self._followed.get(uid)
        node = pod.spec.node_name
        if record is None:
            if not self._sampling.enabled:
                return
            traceparent = pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, "")
            record = self._requested.get(traceparent) if traceparent else None
            if record is not None:
                self._follow(traceparent, record, pod)
            elif node or pod.status.phase in ("Succeeded", "Failed"):
                return
            else:
                record = self._join(pod, traceparent)
                if record is None:
                    return
        if not record.observed_ns:
            record.observed_ns = self._time_ns()
        if node and not record.bound_ns:
            record.node = node
            record.bound_ns = self._time_ns()
            if record.bind_in_flight:
                self._awaiting_answer[uid] = record.bound_ns
            else:
                self._finish(uid, record, "bound", record.bound_ns)

    def deleted(self, pod: Pod) -> None:
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            self._finish(pod.metadata.uid, record, "bound" if record.bound_ns else "deleted", self._time_ns())

    # --- what the scheduler does -----------------------------------------------------------------------------------

    def queued(self, pod: Pod, queue: str, reason: str = "") -> None:
        """A wait begins in "active", "backoff", "unschedulable" or "gated"; the wait before it, if any, ends.
        `reason`: the event that moved the pod, or why it must wait."""
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.add((QUEUED, self._time_ns(), queue, reason))

    def attempt_started(self, pod: Pod, attempt: int) -> None:
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.add((ATTEMPT_STARTED, self._time_ns(), attempt, None))

    def attempt_finished(self, pod: Pod, facts: AttemptFacts) -> None:
        """The scheduling cycle is over: a node is chosen, or none fits, or it failed."""
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.add((ATTEMPT_FINISHED, self._time_ns(), facts, None))

    def reserved(self, pod: Pod, node: str, start_ns: int, error: str | None = None) -> None:
        """The Reserve plugins have run, from `start_ns` to now."""
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.add((PHASE_STARTED, start_ns, "reserve", node))
            record.add((PHASE_FINISHED, self._time_ns(), "reserve", error))

    def permit_started(self, pod: Pod) -> None:
        self._phase_started(pod, "permit")

    def permit_finished(self, pod: Pod, error: str | None = None) -> None:
        self._phase_finished(pod, "permit", error)

    def pre_bind_started(self, pod: Pod) -> None:
        self._phase_started(pod, "pre-bind")

    def pre_bind_finished(self, pod: Pod, error: str | None = None) -> None:
        self._phase_finished(pod, "pre-bind", error)

    def bind_started(self, pod: Pod, node: str) -> None:
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.bind_in_flight = True
            record.add((PHASE_STARTED, self._time_ns(), "bind", node))

    def bind_finished(self, pod: Pod, error: str | None = None) -> None:
        uid = pod.metadata.uid
        record = self._followed.get(uid)
        if record is None:
            return
        now_ns = self._time_ns()
        record.bind_in_flight = False
        record.add((PHASE_FINISHED, now_ns, "bind", error))
        if record.bound_ns:
            self._finish(uid, record, "bound", now_ns)

    # --- asking ----------------------------------------------------------------------------------------------------

    def traceparent_of(self, pod: Pod) -> str:
        """The pod's trace context, for the headers of requests about it; "" if there is none."""
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            return record.context.traceparent
        return pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, "")

    def open_records(self) -> Iterable[PodRecord]:
        """Of the pods on their way. A live view: do not await while iterating."""
        yield from self._requested.values()
        yield from self._followed.values()

    def sweep(self) -> None:
        """Finish what waited in vain: for a sign of a pod whose creation failed, for the answer to a bind request."""
        now_ns = self._time_ns()
        for traceparent, since_ns in [*self._failed.items()]:
            if now_ns - since_ns < FAILED_CREATE_SECONDS * 1e9:
                break
            del self._failed[traceparent]
            record = self._requested.pop(traceparent)
            record.finish("create failed", record.create_end_ns, record.create_error)
            self._finished(record)
        for uid, since_ns in [*self._awaiting_answer.items()]:
            if now_ns - since_ns < UNANSWERED_BIND_SECONDS * 1e9:
                break
            self._finish(uid, self._followed[uid], "bound", since_ns)

    def check(self) -> None:
        assert self._failed.keys() <= self._requested.keys()
        assert self._awaiting_answer.keys() <= self._followed.keys()
        assert all(record.outcome == "" for record in self.open_records())

    # ---------------------------------------------------------------------------------------------------------------

    def _phase_started(self, pod: Pod, phase: str) -> None:
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.add((PHASE_STARTED, self._time_ns(), phase, None))

    def _phase_finished(self, pod: Pod, phase: str, error: str | None) -> None:
        record = self._followed.get(pod.metadata.uid)
        if record is not None:
            record.add((PHASE_FINISHED, self._time_ns(), phase, error))

    def _follow(self, traceparent: str, record: PodRecord, pod: Pod) -> None:
        """The pod that was asked for is there."""
        del self._requested[traceparent]
        self._failed.pop(traceparent, None)
        record.describe(pod)
        self._followed[pod.metadata.uid] = record

    def _join(self, pod: Pod, traceparent: str) -> PodRecord | None:
        """Begin to follow a pod that another process created, or ours before it was restarted; None if unsampled."""
        context = parse_traceparent(traceparent) if traceparent else None
        parent_span_id = ""
        continued = False
        if context is None:
            trace_id = new_trace_id(self._rng)
            if not self._sampling.begins(trace_id):
                return None
            context = TraceContext(trace_id, new_span_id(self._rng), True)
        elif not self._sampling.goes_on(context.trace_id, context.sampled):
            return None
        elif any(owner.controller and owner.kind in _CREATORS for owner in pod.metadata.owner_references):
            continued = True
        else:  # somebody else's span: ours is its child
            parent_span_id = context.span_id
            context = TraceContext(context.trace_id, new_span_id(self._rng), True)
        now_ns = self._time_ns()
        creation = pod.metadata.creation_timestamp
        # objects tell the second of their creation only: we begin at its end, so that no wait is made up
        created_by_ns = (int(creation.timestamp()) + 1) * 1_000_000_000 if creation else now_ns
        record = PodRecord(context, min(now_ns, created_by_ns))
        record.parent_span_id = parent_span_id
        record.continued_ns = now_ns if continued else 0
        record.describe(pod)
        self._followed[pod.metadata.uid] = record
        if len(self._requested) + len(self._followed) > self._max_open:
            self._evict()
        return record

    def _finish(self, uid: str, record: PodRecord, outcome: str, end_ns: int) -> None:
        del self._followed[uid]
        self._awaiting_answer.pop(uid, None)
        record.finish(outcome, end_ns, "deleted before it was bound" if outcome == "deleted" else "")
        self._finished(record)

    def _evict(self) -> None:
        self._evicted += 1
        if self._evicted.bit_count() == 1:  # 1, 2, 4, 8, ...
            log.warning("too many pods on their way, giving up the oldest traces", extra={"given_up": self._evicted})
        if self._followed:
            uid = next(iter(self._followed))
            record = self._followed.pop(uid)
            self._awaiting_answer.pop(uid, None)
        else:
            traceparent = next(iter(self._requested))
            record = self._requested.pop(traceparent)
            self._failed.pop(traceparent, None)
        record.finish("given up", self._time_ns(), "too many pods on their way")
        self._finished(record)


class NoTraces(PodTraces, ReconcileTraces):
    """Traces nothing: for those who do not want to, and for tests and benchmarks of other things."""

    def __init__(self) -> None:
        clock, rng = SystemClock(), random.Random(0)
        PodTraces.__init__(self, clock=clock, rng=rng, sampling=NEVER)
        ReconcileTraces.__init__(self, clock=clock, rng=rng, sampling=NEVER)
