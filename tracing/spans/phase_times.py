"""Durations of a pod's phases, computed from its record without building spans."""

from __future__ import annotations

from kubeloop.tracing.spans.pod_record import (
    ATTEMPT_FINISHED,
    ATTEMPT_STARTED,
    PHASE_FINISHED,
    PHASE_STARTED,
    QUEUED,
    START_PHASES,
    TERMINATING,
    UNFOLLOWED,
    PodRecord,
)

_WAIT_ENDS = frozenset({QUEUED, ATTEMPT_STARTED, UNFOLLOWED})


def phase_times(record: PodRecord) -> dict[str, int]:
    """Return nanoseconds by name of a span under the root, and "total" from creation to binding if the pod was bound.

    Computed for every pod that is bound, so it is optimized for the few facts that most records have.
    """
    times: dict[str, int] = {}
    if record.create_start_ns and record.create_end_ns:
        times["create"] = record.create_end_ns - record.create_start_ns
    if record.observed_ns and not (record.continued_ns and not record.create_end_ns):
        since_ns = record.create_end_ns or record.start_ns
        times["watch delivery"] = record.observed_ns - since_ns if since_ns < record.observed_ns else 0
    wait, wait_ns, attempt_ns, bind_finished_ns = "", 0, 0, 0
    phases: dict[str, int] = {}
    for kind, at_ns, first, second in record.facts:
        if wait and kind in _WAIT_ENDS:
            times[wait] = times.get(wait, 0) + at_ns - wait_ns
            wait = ""
        if kind == PHASE_STARTED:
            phases[first] = at_ns
        elif kind == PHASE_FINISHED:
            times[first] = times.get(first, 0) + at_ns - phases.pop(first, at_ns)
            if first == "bind" and second is None:
                bind_finished_ns = at_ns
        elif kind == QUEUED:
            wait, wait_ns = first if first == TERMINATING else f"queue {first}", at_ns
        elif kind == ATTEMPT_STARTED:
            attempt_ns = at_ns
        elif kind == ATTEMPT_FINISHED:
            times["scheduling attempt"] = times.get("scheduling attempt", 0) + at_ns - (attempt_ns or at_ns)
    bound_ns = record.bound_ns
    if wait:
        times[wait] = times.get(wait, 0) + max(0, (bound_ns or record.end_ns) - wait_ns)
    if bound_ns:
        if bind_finished_ns:
            times["confirmation"] = max(0, bound_ns - bind_finished_ns)
        times["total"] = bound_ns - record.start_ns
        if record.conditions_ns:
            since_ns = bound_ns
            for condition, phase in START_PHASES:
                if condition in record.conditions_ns:
                    times[phase] = max(0, record.conditions_ns[condition] - since_ns)
                    since_ns = max(since_ns, record.conditions_ns[condition])
    return times
