"""Durations of a pod's phases, computed from its record without building spans."""

from __future__ import annotations

from kubeloop.tracing.spans.pod_record import START_PHASES, Phase, PodRecord, SchedulingAttempt, Wait, timeline


def phase_times(record: PodRecord) -> dict[str, int]:
    """Return nanoseconds by name of a span under the root, and "total" from creation to binding if the pod was bound.

    Gaps are not included. Computed for every pod whose trace has ended.
    """
    times: dict[str, int] = {}
    if record.create_start_ns and record.create_end_ns:
        times["create"] = record.create_end_ns - record.create_start_ns
    if record.observed_ns and not (record.continued_ns and not record.create_end_ns):
        since_ns = record.create_end_ns or record.start_ns
        times["watch delivery"] = max(0, record.observed_ns - since_ns)
    bind_finished_ns = 0
    for fact, end_ns, _ in timeline(record):
        if type(fact) is Wait:
            name = fact.span_name
        elif type(fact) is Phase:
            name = fact.name
            if name == "bind" and fact.error is None:
                bind_finished_ns = fact.end_ns
        elif type(fact) is SchedulingAttempt:
            name = "scheduling attempt"
        else:
            continue
        times[name] = times.get(name, 0) + max(0, end_ns - fact.start_ns)
    bound_ns = record.bound_ns
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
