"""Facts of a group's attempt for its trace and for `kubeloop explain`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.attempts.failed_attempts import Failure
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.fit_error import Diagnosis, NodeToStatus
from kubeloop.scheduler.pod_groups.attempt_facts import attempt_facts, placement_facts
from kubeloop.scheduler.pod_groups.group_result import GroupResult, MemberResult, group_result
from kubeloop.scheduler.queue.nominator import Nomination
from kubeloop.tracing.spans.pod_group_record import MAX_PLACEMENTS, PlacementFacts
from support.scheduling.plugin_cluster import make_pod

WAITS = Status(Code.WAIT, ("waiting",))


def member(name, node="", failure=None, permit=None, victims=0):
    queued = SimpleNamespace(info=None, pod=make_pod(name))
    attempt = Attempt(None, queued, 0)
    attempt.facts.victims = victims
    return MemberResult(attempt, node, failure, permit)


def failure(message, preemption="", nominated=""):
    diagnosis = Diagnosis(NodeToStatus(Snapshot()), post_filter_message=preemption)
    return Failure(f"{message} {preemption}".rstrip(), diagnosis, Nomination(nominated))


def facts_of(result, placements=1, name=""):
    evaluated = [placement_facts(f"{name}{number}" if name else "", 0, 1, result) for number in range(placements)]
    return attempt_facts(result, len(result.members), evaluated)


def test_scheduled_group_has_the_number_of_its_pods_and_the_placement():
    members = [member("a", "n1"), member("b", "n2"), member("c", failure=failure("no room"))]
    result = GroupResult(members, placement="rack0")
    facts = facts_of(result, placements=2, name="rack")
    assert (facts.result, facts.pods, facts.scheduled_pods, facts.message) == ("scheduled", 3, 2, "")
    assert facts.placement == "rack0"
    assert [(placement.name, placement.feasible_pods, placement.message) for placement in facts.placements] == [
        ("rack0", 2, ""),
        ("rack1", 2, ""),
    ]


def test_unschedulable_group_has_the_first_pod_that_does_not_fit():
    no_room = failure("0/1 nodes are available: 1 Insufficient cpu.", "preemption: not helpful.")
    facts = facts_of(group_result([member("a", "n1", permit=WAITS), member("b", failure=no_room)]))
    assert (facts.result, facts.scheduled_pods, facts.placements) == ("unschedulable", 0, [])
    assert facts.message == "1 of 2 pods fit; b: 0/1 nodes are available: 1 Insufficient cpu."
    assert (facts.unfit_pod, facts.preemption) == ("b", "preemption: not helpful.")


def test_group_for_which_preemption_does_not_help_has_the_reason():
    no_room = failure("no room", "preemption: not helpful.")
    result = group_result([member("a", failure=no_room)])
    reasons = (*result.status.reasons, "preemption of pods or pod groups does not help")
    result = GroupResult(result.members, Status(Code.UNSCHEDULABLE, reasons))
    assert facts_of(result).message == "0 of 1 pods fit; a: no room"
    assert facts_of(result).preemption == "preemption of pods or pod groups does not help"
    assert facts_of(result, name="rack").message == "pod group is unschedulable"


def test_group_whose_pods_all_fit_waits_for_more_pods():
    facts = facts_of(group_result([member("a", "n1", permit=WAITS), member("b", "n1", permit=WAITS)]))
    assert facts.message == "2 of 2 pods fit; Permit waits for more pods"
    assert facts.unfit_pod == ""


def test_group_that_waits_for_preemption_has_its_victims():
    makes_room = failure("no room", "", "n1")
    facts = facts_of(group_result([member("a", "n1", makes_room, victims=2), member("b", "n1")]))
    assert (facts.result, facts.victims, facts.preemption) == ("preempting", 2, "")
    assert facts.message.endswith("pod group is waiting for preemption to complete")


@pytest.mark.parametrize("members", [[member("a", failure=Failure("timeout"))], []])
def test_error_has_its_message(members):
    result = group_result(members) if members else GroupResult(status=Status(Code.ERROR, ("no snapshot",)))
    facts = attempt_facts(result, 1, [PlacementFacts("", 0, 1, message="rejected")])
    assert facts.result == "error"
    assert facts.message == ("failed to schedule other pod from a pod group: timeout" if members else "no snapshot")


def test_placements_are_limited():
    placements = [PlacementFacts(f"rack{number}", 0, 1) for number in range(MAX_PLACEMENTS + 10)]
    facts = attempt_facts(GroupResult(), 0, placements)
    assert (len(facts.placements), facts.placement_count) == (MAX_PLACEMENTS, MAX_PLACEMENTS + 10)
