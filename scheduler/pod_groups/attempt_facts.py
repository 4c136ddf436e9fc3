"""Facts of a pod group's scheduling attempt, for its trace and for `kubeloop explain podgroup/NAME`."""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.scheduler.attempts.failed_attempts import Failure
from kubeloop.scheduler.pod_groups.group_result import GroupResult
from kubeloop.tracing.spans.pod_group_record import MAX_PLACEMENTS, PlacementFacts, PodGroupAttemptFacts


def placement_facts(name: str, start_ns: int, end_ns: int, result: GroupResult) -> PlacementFacts:
    """Return what the trace and `kubeloop explain` show of one placement."""
    fitting, (unfit_pod, failure) = _fitting(result), _first_failure(result)
    message = ""
    if result.status is not None:
        message = f"{fitting} of {len(result.members)} pods fit"
        if failure is not None:
            message += f"; {unfit_pod}: {failure.message.removesuffix(_preemption(failure)).rstrip()}"
        elif any(member.permit is not None for member in result.members):
            message += "; Permit waits for more pods"
    return PlacementFacts(name, start_ns, end_ns, fitting, message, unfit_pod)


def attempt_facts(result: GroupResult, pods: int, placements: Sequence[PlacementFacts]) -> PodGroupAttemptFacts:
    """Return what the trace and `kubeloop explain` show of an attempt.

    pods: number of members. placements: all that were evaluated.
    """
    named = [placement for placement in placements if placement.name]
    facts = PodGroupAttemptFacts(
        "scheduled",
        pods,
        placement=result.placement,
        placements=named[:MAX_PLACEMENTS],
        placement_count=len(named),
        victims=result.victims + sum(member.attempt.facts.victims for member in result.members),
    )
    if result.status is None:
        facts.scheduled_pods = _fitting(result)
        return facts
    facts.unfit_pod, failure = _first_failure(result)
    if result.waits_for_preemption:
        facts.result, facts.message = "preempting", result.status.message
        return facts
    facts.result, facts.message = "error" if result.is_error else "unschedulable", result.status.message
    if not result.is_error and result.status.reasons:
        facts.message, *others = result.status.reasons  # the others: why preemption for the whole group does not help
        facts.preemption = ", ".join(others) or (_preemption(failure) if failure is not None else "")
        if not named and placements and placements[0].message:
            facts.message = placements[0].message  # that of the status names no pod
    return facts


def _fitting(result: GroupResult) -> int:
    return sum(1 for member in result.members if member.node and member.failure is None)


def _first_failure(result: GroupResult) -> tuple[str, Failure | None]:
    """Return the name of the first pod that does not fit now, and why; "" and None if all do."""
    for member in result.members:
        if member.failure is not None:
            return member.attempt.queued.pod.metadata.name, member.failure
    return "", None


def _preemption(failure: Failure) -> str:
    """Return why preemption does not make room; "" if it was not tried."""
    return failure.diagnosis.post_filter_message if failure.diagnosis is not None else ""
