"""How long a pod was in each phase, from its record: what the spans of its trace add up to, without building them.

May import this room only.
"""

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

_ENDS_A_WAIT = frozenset({QUEUED, ATTEMPT_STARTED, UNFOLLOWED})


def phase_times(record: PodRecord) -> dict[str, int]:
    """Nanoseconds by the name of a span under the root, and "total" from creation to binding if it was bound.

    Taken of every pod that is bound: written for the few facts that most have.
    """
    times: dict[str, int] = {}
    if record.create_start_ns and record.create_end_ns:
        times["create"] = record.create_end_ns - record.create_start_ns
    if record.observed_ns and not (record.continued_ns and not record.create_end_ns):
        since_ns = record.create_end_ns or record.start_ns
        times["watch delivery"] = record.observed_ns - since_ns if since_ns < record.observed_ns else 0
    wait, wait_ns, attempt_ns, bound_by_us_ns = "", 0, 0, 0
    phases: dict[str, int] = {}
    for what, at_ns, first, second in record.facts:
        if wait and what in _ENDS_A_WAIT:
            times[wait] = times.get(wait, 0) + at_ns - wait_ns
            wait = ""
        if what == PHASE_STARTED:
            phases[first] = at_ns
        elif what == PHASE_FINISHED:
            times[first] = times.get(first, 0) + at_ns - phases.pop(first, at_ns)
            if first == "bind" and second is None:
                bound_by_us_ns = at_ns
        elif what == QUEUED:
            wait, wait_ns = first if first == TERMINATING else f"queue {first}", at_ns
        elif what == ATTEMPT_STARTED:
            attempt_ns = at_ns
        elif what == ATTEMPT_FINISHED:
            times["scheduling attempt"] = times.get("scheduling attempt", 0) + at_ns - (attempt_ns or at_ns)
    bound_ns = record.bound_ns
    if wait:
        times[wait] = times.get(wait, 0) + max(0, (bound_ns or record.end_ns) - wait_ns)
    if bound_ns:
        if bound_by_us_ns:
            times["confirmation"] = max(0, bound_ns - bound_by_us_ns)
        times["total"] = bound_ns - record.start_ns
        if record.conditions_ns:
            since_ns = bound_ns
            for condition, phase in START_PHASES:
                if condition in record.conditions_ns:
                    times[phase] = max(0, record.conditions_ns[condition] - since_ns)
                    since_ns = max(since_ns, record.conditions_ns[condition])
    return times
