"""Results of pod groups: whether a group can be scheduled, and the failure of each member."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.results import failed, unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempts.failed_attempts import Failure
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.pod_groups.group_result import (
    GroupResult,
    MemberResult,
    after_preemption,
    group_result,
    member_failure,
    none_of_placements,
)
from kubeloop.scheduler.queue.nominator import Nomination

ATTEMPT: Any = None
SNAPSHOT = Snapshot()
WAIT = Status(Code.WAIT, ("one or more plugins asked to wait",))
NO_FIT = Failure("0/1 nodes are available.", Diagnosis(NodeToStatus(SNAPSHOT)))
PREEMPTS = Failure("0/1 nodes are available: preempts", Diagnosis(NodeToStatus(SNAPSHOT)), Nomination("n"))
BROKEN = Failure("broken")

ALLOWED = MemberResult(ATTEMPT, "n")
WAITS = MemberResult(ATTEMPT, "n", None, WAIT)
REJECTED = MemberResult(ATTEMPT, "", NO_FIT)
FAILED = MemberResult(ATTEMPT, "", BROKEN)
PREEMPTING = MemberResult(ATTEMPT, "n", PREEMPTS)
PREEMPTING_AND_WAITING = MemberResult(ATTEMPT, "n", PREEMPTS, WAIT)
NO_QUORUM = "pod group is unschedulable"
PREEMPTION = f"{NO_QUORUM}, pod group is waiting for preemption to complete"


@pytest.mark.parametrize(
    ("members", "status", "waits_for_preemption"),
    [
        pytest.param([ALLOWED], None, False, id="allowed"),
        pytest.param([WAITS, WAITS, ALLOWED], None, False, id="quorum reached by the last"),
        pytest.param([WAITS, ALLOWED, REJECTED], None, False, id="more than minCount pods, one does not fit"),
        pytest.param([REJECTED, WAITS, ALLOWED], None, False, id="another one does not fit"),
        pytest.param([WAITS, REJECTED, WAITS], (Code.UNSCHEDULABLE, NO_QUORUM), False, id="no quorum"),
        pytest.param([REJECTED], (Code.UNSCHEDULABLE, NO_QUORUM), False, id="no node"),
        pytest.param([WAITS, PREEMPTING], (Code.UNSCHEDULABLE, PREEMPTION), True, id="the last preempts"),
        pytest.param([PREEMPTING_AND_WAITING, ALLOWED], (Code.UNSCHEDULABLE, PREEMPTION), True, id="one preempts"),
        pytest.param([ALLOWED, PREEMPTING], (Code.UNSCHEDULABLE, PREEMPTION), True, id="one beyond minCount preempts"),
        pytest.param(
            [PREEMPTING_AND_WAITING, WAITS], (Code.UNSCHEDULABLE, NO_QUORUM), False, id="preempts, but no quorum"
        ),
        pytest.param(
            [PREEMPTING, FAILED],
            (Code.ERROR, "failed to schedule other pod from a pod group: broken"),
            False,
            id="an error",
        ),
        pytest.param([], (Code.UNSCHEDULABLE, NO_QUORUM), False, id="no members"),
    ],
)
def test_group_can_be_scheduled_if_permit_allows_a_member(members, status, waits_for_preemption):
    result = group_result(members)
    found = result.status
    assert (None if found is None else (found.code, found.message)) == status
    assert result.waits_for_preemption is waits_for_preemption
    assert result.is_feasible is (status is None or waits_for_preemption)
    assert result.is_error is (status is not None and status[0] is Code.ERROR)
    assert result.members is members


SCHEDULED = GroupResult()
UNSCHEDULABLE = GroupResult(status=Status(Code.UNSCHEDULABLE, ("no feasible placements found",)))
PREEMPTS_FIRST = GroupResult(status=Status(Code.UNSCHEDULABLE, (PREEMPTION,)), waits_for_preemption=True)
ERROR = GroupResult(status=Status(Code.ERROR, ("failed to schedule other pod",)))


@pytest.mark.parametrize(
    ("group", "member", "expected"),
    [
        pytest.param(SCHEDULED, ALLOWED, None, id="scheduled: fits"),
        pytest.param(SCHEDULED, WAITS, None, id="scheduled: fits, waits on permit"),
        pytest.param(SCHEDULED, REJECTED, (NO_FIT.message, True, ""), id="scheduled: does not fit"),
        pytest.param(UNSCHEDULABLE, WAITS, (f"{NO_QUORUM}, {WAIT.message}", True, ""), id="unschedulable: fits"),
        pytest.param(UNSCHEDULABLE, REJECTED, (NO_FIT.message, True, ""), id="unschedulable: does not fit"),
        pytest.param(
            UNSCHEDULABLE,
            PREEMPTING_AND_WAITING,
            (f"{NO_QUORUM}, {WAIT.message}", True, ""),
            id="unschedulable: preemption is no use",
        ),
        pytest.param(UNSCHEDULABLE, None, ("no feasible placements found", True, None), id="unschedulable: not tried"),
        pytest.param(PREEMPTS_FIRST, WAITS, (PREEMPTION, True, "n"), id="preemption: fits"),
        pytest.param(PREEMPTS_FIRST, PREEMPTING, (PREEMPTS.message, True, "n"), id="preemption: preempts"),
        pytest.param(PREEMPTS_FIRST, REJECTED, (NO_FIT.message, True, ""), id="preemption: does not fit"),
        pytest.param(ERROR, WAITS, ("failed to schedule other pod", False, ""), id="error: fits"),
        pytest.param(ERROR, FAILED, ("broken", False, ""), id="error: its own"),
        pytest.param(ERROR, REJECTED, ("failed to schedule other pod", False, ""), id="error: does not fit"),
        pytest.param(ERROR, None, ("failed to schedule other pod", False, ""), id="error: not tried"),
    ],
)
def test_why_a_member_is_not_bound(group, member, expected):
    failure = member_failure(group, member, SNAPSHOT)
    if failure is None:
        assert expected is None
    else:
        message, diagnosis, nomination = failure
        assert (message, diagnosis is not None, nomination.new_node_name) == expected


def test_result_of_a_group_that_no_placement_fits():
    result = none_of_placements(GroupResult([REJECTED], Status(Code.UNSCHEDULABLE)), 3)
    assert result.members == [REJECTED]
    assert result.status == Status(
        Code.UNSCHEDULABLE, ("0/3 placements are available, first placement status: pod group is unschedulable",)
    )


@pytest.mark.parametrize(
    ("status", "reasons", "waits"),
    [
        pytest.param(None, ("no room",), True, id="preemption helps"),
        pytest.param(unschedulable("", "no victims"), ("no room", "no victims"), False, id="preemption does not help"),
        pytest.param(failed("", "refused"), ("refused",), False, id="preemption failed"),
    ],
)
def test_result_after_preemption(status, reasons, waits):
    before = GroupResult(status=Status(Code.UNSCHEDULABLE, ("no room",)))
    result = after_preemption(before, 3, status)
    assert (result.status.reasons, result.waits_for_preemption, result.victims) == (reasons, waits, 3)
    assert result.status.code is (Code.ERROR if reasons == ("refused",) else Code.UNSCHEDULABLE)
