"""How long a pod was in each phase, from its record: what the spans of its trace add up to, without building them.

May import this room only.
"""

from __future__ import annotations

from kubeloop.tracing.pod_record import (
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


def phase_times(record: PodRecord) -> dict[str, int]:
    """Nanoseconds by the name of a span under the root, and "total" from creation to binding if it was bound."""
    times: dict[str, int] = {}

    def add(phase: str, start_ns: int, end_ns: int) -> None:
        times[phase] = times.get(phase, 0) + max(0, end_ns - start_ns)

    if record.create_start_ns and record.create_end_ns:
        add("create", record.create_start_ns, record.create_end_ns)
    if record.observed_ns and not (record.continued_ns and not record.create_end_ns):
        add("watch delivery", min(record.create_end_ns or record.start_ns, record.observed_ns), record.observed_ns)
    wait, wait_ns, attempt_ns, bound_by_us_ns = "", 0, 0, 0
    phases: dict[str, int] = {}
    for what, at_ns, first, second in record.facts:
        if wait and what in (QUEUED, ATTEMPT_STARTED, UNFOLLOWED):
            add(wait, wait_ns, at_ns)
            wait = ""
        if what == QUEUED:
            wait, wait_ns = first if first == TERMINATING else f"queue {first}", at_ns
        elif what == ATTEMPT_STARTED:
            attempt_ns = at_ns
        elif what == ATTEMPT_FINISHED:
            add("scheduling attempt", attempt_ns or at_ns, at_ns)
        elif what == PHASE_STARTED:
            phases[first] = at_ns
        elif what == PHASE_FINISHED:
            add(first, phases.pop(first, at_ns), at_ns)
            if first == "bind" and second is None:
                bound_by_us_ns = at_ns
    end_ns = record.bound_ns or record.end_ns
    if wait:
        add(wait, wait_ns, end_ns)
    if record.bound_ns:
        if bound_by_us_ns:
            add("confirmation", bound_by_us_ns, record.bound_ns)
        add("total", record.start_ns, record.bound_ns)
        since_ns = record.bound_ns
        for condition, phase in START_PHASES:
            if condition in record.conditions_ns:
                add(phase, since_ns, record.conditions_ns[condition])
                since_ns = max(since_ns, record.conditions_ns[condition])
    return times
