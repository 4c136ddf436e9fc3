"""The result of a pod group's scheduling cycle: whether the group can be scheduled, and what happens to each member.

Source: podGroupSchedulingDefaultAlgorithm and submitPodGroupAlgorithmResult of
pkg/scheduler/schedule_one_podgroup.go, v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.attempts.failed_attempts import Failure
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.queue.nominator import UNCHANGED, Nomination

_UNSCHEDULABLE = "pod group is unschedulable"
_WAITS_FOR_PREEMPTION = "pod group is waiting for preemption to complete"


class MemberResult(msgspec.Struct, frozen=True):
    """The result of one member.

    node: chosen for the pod, or the one on which preemption makes room for it; "" if there is none.
    failure: why the pod does not fit; None: it fits on `node` now.
    permit: the status of the Permit plugins for `node`; None: allowed.
    duration_ns: of the member's part of the cycle.
    """

    attempt: Attempt
    node: str = ""
    failure: Failure | None = None
    permit: Status | None = None
    duration_ns: int = 0

    @property
    def is_error(self) -> bool:
        """True if the attempt ended with an error, not with a rejection."""
        return self.failure is not None and self.failure.diagnosis is None

    @property
    def requires_preemption(self) -> bool:
        return self.failure is not None and self.node != ""


class GroupResult(msgspec.Struct, frozen=True):
    """The result of a group.

    members: in the order of the group; fewer than those if the cycle ended early.
    status: None: the members that fit are to be bound. Otherwise none of them is.
    waits_for_preemption: the group can be scheduled once preemption has made room.
    placement: the name of the placement of a group that can be scheduled; "" without topology constraints.
    victims: number of pods that a preemption for the whole group evicts.
    """

    members: Sequence[MemberResult] = ()
    status: Status | None = None
    waits_for_preemption: bool = False
    placement: str = ""
    victims: int = 0

    @property
    def is_error(self) -> bool:
        return self.status is not None and not self.status.is_rejection

    @property
    def is_feasible(self) -> bool:
        """True if the group can be scheduled, now or after preemption."""
        return self.status is None or self.waits_for_preemption


def group_result(members: Sequence[MemberResult]) -> GroupResult:
    """Return the result of a group whose members were tried in this order, each with the nodes of those before it.

    The group can be scheduled if Permit allows any member: the others wait on permit for that one. If a member up to it
    needs preemption, the whole group waits for that.
    """
    for member in members:
        if member.failure is not None and member.is_error:
            message = f"failed to schedule other pod from a pod group: {member.failure.message}"
            return GroupResult(members, Status(Code.ERROR, (message,)))
    result = GroupResult(members, Status(Code.UNSCHEDULABLE, (_UNSCHEDULABLE,)))
    requires_preemption = False
    for member in members:
        requires_preemption = requires_preemption or member.requires_preemption
        if member.node and member.permit is None:
            if requires_preemption:
                result = GroupResult(members, Status(Code.UNSCHEDULABLE, (_UNSCHEDULABLE, _WAITS_FOR_PREEMPTION)), True)
            else:
                result = GroupResult(members)
    return result


def after_preemption(result: GroupResult, victims: int, status: Status | None) -> GroupResult:
    """Return the result of a group for which preemption was tried. status: why it does not help; None: it does."""
    result = msgspec.structs.replace(result, victims=victims)
    if status is None:
        return msgspec.structs.replace(result, waits_for_preemption=True)
    if not status.is_rejection:
        return msgspec.structs.replace(result, status=status)
    assert result.status is not None
    reasons = (*result.status.reasons, status.message)
    return msgspec.structs.replace(result, status=msgspec.structs.replace(result.status, reasons=reasons))


def member_failure(group: GroupResult, member: MemberResult | None, snapshot: Snapshot) -> Failure | None:
    """Return why a member of the group is not bound; None: it is. member None: the cycle did not reach it."""
    status = group.status
    if status is not None and group.is_error:
        own = member.failure if member is not None and member.is_error else None
        return Failure(own.message if own is not None else status.message)
    no_reasons = Diagnosis(NodeToStatus(snapshot))
    if member is None:
        return Failure(status.message if status is not None else "", no_reasons, UNCHANGED)
    if member.failure is not None and (group.waits_for_preemption or not member.requires_preemption):
        return member.failure
    if status is None and member.failure is None:
        return None
    if group.waits_for_preemption and status is not None:
        return Failure(status.message, no_reasons, Nomination(member.node))
    permit_message = member.permit.message if member.permit is not None else ""
    return Failure(f"{_UNSCHEDULABLE}, {permit_message}", no_reasons)


def none_of_placements(first: GroupResult, placements: int) -> GroupResult:
    """Return the result of a group that can be scheduled in none of its placements; `first` is that of the first."""
    message = f"0/{placements} placements are available, first placement status: {_UNSCHEDULABLE}"
    return GroupResult(first.members, Status(Code.UNSCHEDULABLE, (message,)))
