"""Status of a Deployment: counts, conditions and progress, as the source of v1.36 defines them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.controllers.deployment import deployment_status as status
from kubeloop.controllers.runtime.integers import MAX_INT32
from kubeloop.kube.objects.api_types import Condition, DeploymentStatus, ReplicaSet, ReplicaSetStatus
from support.objects.deployments import NOW, replica_set, rolling_update_deployment

BEFORE = NOW - timedelta(seconds=90)


def condition(
    type_: str, state: str, reason: str, *, updated: datetime | None = BEFORE, message: str = "before"
) -> Condition:
    """Return a condition with lastTransitionTime BEFORE."""
    return Condition(
        type=type_, status=state, reason=reason, message=message, last_update_time=updated, last_transition_time=BEFORE
    )


def progressing(state: str, reason: str, *, updated: datetime | None = BEFORE, message: str = "before") -> Condition:
    return condition("Progressing", state, reason, updated=updated, message=message)


def test_new_condition_has_whole_seconds():
    now = NOW + timedelta(microseconds=999_999)
    assert status.new_condition("Available", "True", "Reason", "message", now) == Condition(
        type="Available",
        status="True",
        reason="Reason",
        message="message",
        last_update_time=NOW,
        last_transition_time=NOW,
    )


@pytest.mark.parametrize(
    ("state", "reason", "transitioned", "changed"),
    [
        pytest.param("True", "Same", BEFORE, False, id="same status and reason: unchanged"),
        pytest.param("True", "Other", BEFORE, True, id="another reason keeps lastTransitionTime"),
        pytest.param("False", "Same", NOW, True, id="another status"),
        pytest.param("False", "Other", NOW, True, id="another status and reason"),
    ],
)
def test_condition_replaces_that_of_its_type(state, reason, transitioned, changed):
    old, other = condition("Available", "True", "Same"), progressing("True", "Same")
    new = status.new_condition("Available", state, reason, "now", NOW)
    conditions = status.with_condition(DeploymentStatus(conditions=(old, other)), new).conditions
    expected = (other, replace(new, last_transition_time=transitioned)) if changed else (old, other)
    assert conditions == expected


def test_condition_of_a_new_type_is_appended():
    old, new = condition("Available", "True", "Same"), progressing("True", "Same")
    assert status.with_condition(DeploymentStatus(conditions=(old,)), new).conditions == (old, new)


def test_condition_is_removed_by_type():
    available, progress = condition("Available", "True", "R"), progressing("True", "R")
    both = DeploymentStatus(replicas=1, conditions=(available, progress))
    assert status.without_condition(both, "Available") == DeploymentStatus(replicas=1, conditions=(progress,))
    assert status.without_condition(both, "ReplicaFailure") == both


@pytest.mark.parametrize(
    ("deadline", "has_one"),
    [
        pytest.param(None, False, id="unset"),
        pytest.param(MAX_INT32, False, id="the largest int32 means none"),
        pytest.param(MAX_INT32 - 1, True, id="long"),
        pytest.param(600, True, id="the default"),
    ],
)
def test_progress_deadline(deadline, has_one):
    assert status.has_progress_deadline(rolling_update_deployment(1, deadline_seconds=deadline)) is has_one


COMPLETE = DeploymentStatus(
    replicas=3, updated_replicas=3, available_replicas=3, ready_replicas=3, observed_generation=4
)


@pytest.mark.parametrize(
    ("changes", "complete"),
    [
        pytest.param({}, True, id="all updated and available"),
        pytest.param({"updated_replicas": 2}, False, id="one is not updated"),
        pytest.param({"replicas": 4}, False, id="one old Pod is left"),
        pytest.param({"available_replicas": 2}, False, id="one is not available"),
        pytest.param({"observed_generation": 3}, False, id="the spec is newer"),
        pytest.param({"observed_generation": 5}, True, id="a later generation was observed"),
        pytest.param({"ready_replicas": 0}, True, id="readyReplicas does not count"),
    ],
)
def test_rollout_is_complete(changes, complete):
    deployment = rolling_update_deployment(3, generation=4)
    assert status.is_complete(deployment, replace(COMPLETE, **changes)) is complete


@pytest.mark.parametrize(
    ("changes", "advanced"),
    [
        pytest.param({}, False, id="unchanged"),
        pytest.param({"updated_replicas": 3, "replicas": 6}, True, id="one more is updated"),
        pytest.param({"updated_replicas": 1, "replicas": 4}, False, id="one fewer is updated"),
        pytest.param({"replicas": 4}, True, id="one fewer is old"),
        pytest.param({"replicas": 6}, False, id="one more is old"),
        pytest.param({"ready_replicas": 4}, True, id="one more is ready"),
        pytest.param({"ready_replicas": 2}, False, id="one fewer is ready"),
        pytest.param({"available_replicas": 3}, True, id="one more is available"),
        pytest.param({"available_replicas": 1}, False, id="one fewer is available"),
        pytest.param({"updated_replicas": 1, "replicas": 3}, True, id="fewer of both, but fewer are old"),
    ],
)
def test_rollout_progresses(changes, advanced):
    old = DeploymentStatus(replicas=5, updated_replicas=2, ready_replicas=3, available_replicas=2)
    deployment = rolling_update_deployment(3, status=old)
    assert status.is_progressing(deployment, replace(old, **changes)) is advanced


@pytest.mark.parametrize(
    ("deadline", "current", "timed_out"),
    [
        pytest.param(60, progressing("True", "ReplicaSetUpdated"), True, id="90 s without progress"),
        pytest.param(89, progressing("True", "ReplicaSetUpdated"), True, id="one second too late"),
        pytest.param(90, progressing("True", "ReplicaSetUpdated"), False, id="exactly the deadline"),
        pytest.param(91, progressing("True", "ReplicaSetUpdated"), False, id="before the deadline"),
        pytest.param(0, progressing("True", "ReplicaSetUpdated", updated=NOW), False, id="deadline 0, just now"),
        pytest.param(60, progressing("True", "ReplicaSetUpdated", updated=None), True, id="no update time"),
        pytest.param(60, progressing("True", "NewReplicaSetAvailable"), False, id="complete"),
        pytest.param(
            600, progressing("False", "ProgressDeadlineExceeded", updated=NOW), True, id="it has timed out before"
        ),
        pytest.param(60, None, False, id="no condition"),
        pytest.param(None, progressing("True", "ReplicaSetUpdated"), False, id="no deadline"),
    ],
)
def test_rollout_times_out(deadline, current, timed_out):
    new_status = DeploymentStatus(conditions=() if current is None else (current,))
    deployment = rolling_update_deployment(3, deadline_seconds=deadline)
    assert status.is_timed_out(deployment, new_status, NOW) is timed_out


@pytest.mark.parametrize(
    ("deadline", "current", "new_status", "seconds"),
    [
        pytest.param(120, progressing("True", "ReplicaSetUpdated"), {}, 30.0, id="30 of 120 s are left"),
        pytest.param(60, progressing("True", "ReplicaSetUpdated"), {}, -30.0, id="30 s too late"),
        pytest.param(60, progressing("True", "ReplicaSetUpdated", updated=None), {}, 0.0, id="no update time"),
        pytest.param(60, progressing("False", "ProgressDeadlineExceeded"), {}, None, id="it has timed out"),
        pytest.param(None, progressing("True", "ReplicaSetUpdated"), {}, None, id="no deadline"),
        pytest.param(60, None, {}, None, id="no condition"),
        pytest.param(
            120,
            progressing("True", "ReplicaSetUpdated"),
            {"replicas": 3, "updated_replicas": 3, "available_replicas": 3, "observed_generation": 1},
            None,
            id="complete",
        ),
    ],
)
def test_seconds_until_progress_deadline(deadline, current, new_status, seconds):
    before = DeploymentStatus(conditions=() if current is None else (current,))
    deployment = rolling_update_deployment(3, deadline_seconds=deadline, status=before)
    assert status.seconds_until_progress_deadline(deployment, DeploymentStatus(**new_status), NOW) == seconds


@pytest.mark.parametrize(
    ("paused", "deadline", "current", "expected"),
    [
        pytest.param(
            True,
            60,
            progressing("True", "ReplicaSetUpdated"),
            ("Unknown", "DeploymentPaused", "Deployment is paused", NOW),
            id="paused",
        ),
        pytest.param(True, 60, None, ("Unknown", "DeploymentPaused", "Deployment is paused", NOW), id="paused, new"),
        pytest.param(
            True,
            60,
            progressing("Unknown", "DeploymentPaused"),
            ("Unknown", "DeploymentPaused", "before", BEFORE),
            id="paused before",
        ),
        pytest.param(
            False,
            60,
            progressing("Unknown", "DeploymentPaused"),
            ("Unknown", "DeploymentResumed", "Deployment is resumed", NOW),
            id="resumed",
        ),
        pytest.param(
            False,
            60,
            progressing("True", "ReplicaSetUpdated"),
            ("True", "ReplicaSetUpdated", "before", BEFORE),
            id="never paused",
        ),
        pytest.param(False, 60, None, None, id="never paused, no condition"),
        pytest.param(
            True,
            60,
            progressing("False", "ProgressDeadlineExceeded"),
            ("False", "ProgressDeadlineExceeded", "before", BEFORE),
            id="paused after the deadline",
        ),
        pytest.param(True, None, None, None, id="no deadline"),
    ],
)
def test_pausing_and_resuming_restart_the_deadline(paused, deadline, current, expected):
    before = DeploymentStatus(replicas=2, conditions=() if current is None else (current,))
    deployment = rolling_update_deployment(3, deadline_seconds=deadline, paused=paused, status=before)
    after = status.with_paused_condition(deployment, NOW)
    assert replace(after, conditions=()) == DeploymentStatus(replicas=2)
    assert [(new.status, new.reason, new.message, new.last_update_time) for new in after.conditions] == (
        [] if expected is None else [expected]
    )


def failing(name: str, *messages: str) -> ReplicaSet:
    """Return a ReplicaSet with a ReplicaFailure condition per message, and another condition."""
    failures = tuple(
        Condition(
            type="ReplicaFailure", status="True", reason="FailedCreate", message=message, last_transition_time=BEFORE
        )
        for message in messages
    )
    return replica_set(name, 1, conditions=(Condition(type="Other", message="other"), *failures))


@pytest.mark.parametrize(
    ("new_rs", "old_rss", "messages"),
    [
        pytest.param(None, [], [], id="no ReplicaSet"),
        pytest.param(failing("new"), [failing("old")], [], id="none fails"),
        pytest.param(failing("new", "of new"), [failing("old", "of old")], ["of new"], id="the new one comes first"),
        pytest.param(failing("new"), [failing("a", "of a"), failing("b", "of b")], ["of a", "of b"], id="old ones"),
        pytest.param(None, [failing("a", "of a")], ["of a"], id="no new one"),
    ],
)
def test_failures_of_replica_sets(new_rs, old_rss, messages):
    all_rss = [*old_rss, *([] if new_rs is None else [new_rs])]
    failures = status.replica_failures(all_rss, new_rs)
    assert [failure.message for failure in failures] == messages
    for failure in failures:
        assert (failure.type, failure.status, failure.reason) == ("ReplicaFailure", "True", "FailedCreate")
        assert (failure.last_update_time, failure.last_transition_time) == (BEFORE, BEFORE)


OLD = ReplicaSetStatus(
    replicas=4, ready_replicas=3, available_replicas=2, terminating_replicas=5, observed_generation=1
)
NEW = ReplicaSetStatus(
    replicas=6, ready_replicas=5, available_replicas=4, terminating_replicas=1, observed_generation=1
)


def test_counts_are_sums_over_replica_sets():
    before = DeploymentStatus(collision_count=7, replicas=99, updated_replicas=99)
    deployment = rolling_update_deployment(10, generation=3, status=before)
    old_rs, new_rs = replica_set("old", 4, status=OLD), replica_set("new", 7, status=NEW)
    computed = status.calculate_status(deployment, [old_rs, new_rs], new_rs, NOW)
    assert replace(computed, conditions=()) == DeploymentStatus(
        observed_generation=3,
        replicas=10,
        updated_replicas=6,
        ready_replicas=8,
        available_replicas=6,
        unavailable_replicas=5,  # of spec.replicas of the ReplicaSets, 4 + 7
        terminating_replicas=6,
        collision_count=7,
    )
    assert status.calculate_status(deployment, [old_rs], None, NOW).updated_replicas == 0
    without = status.calculate_status(deployment, [old_rs, new_rs], new_rs, NOW, counts_terminating=False)
    assert without == replace(computed, terminating_replicas=None)


def test_unavailable_replicas_are_never_negative():
    """More Pods than spec.replicas are available while a ReplicaSet is scaled down."""
    rs = replica_set("new", 1, status=NEW)
    assert status.calculate_status(rolling_update_deployment(1), [rs], rs, NOW).unavailable_replicas == 0


@pytest.mark.parametrize(
    ("statuses", "terminating"),
    [
        pytest.param([], 0, id="no ReplicaSet"),
        pytest.param([(2, 1), (3, 1)], 5, id="sum"),
        pytest.param([(2, 1), (None, 0)], 2, id="one was never synced"),
        pytest.param([(2, 1), (None, 1)], None, id="one was synced without the field"),
    ],
)
def test_terminating_replicas(statuses, terminating):
    all_rss = [
        replica_set(
            f"rs-{number}", 1, status=ReplicaSetStatus(terminating_replicas=count, observed_generation=observed)
        )
        for number, (count, observed) in enumerate(statuses)
    ]
    computed = status.calculate_status(rolling_update_deployment(1), all_rss, None, NOW)
    assert computed.terminating_replicas == terminating


@pytest.mark.parametrize(
    ("replicas", "unavailable", "available", "state"),
    [
        pytest.param(10, 2, 8, "True", id="exactly the minimum"),
        pytest.param(10, 2, 7, "False", id="below the minimum"),
        pytest.param(10, "25%", 8, "True", id="25% of 10, rounded down"),
        pytest.param(10, "25%", 7, "False", id="below 25% of 10, rounded down"),
        pytest.param(0, 0, 0, "True", id="no replicas"),
        pytest.param(1, 1, 0, "True", id="none needs to be available"),
    ],
)
def test_available_condition(replicas, unavailable, available, state):
    rs = replica_set("new", replicas, available)
    computed = status.calculate_status(rolling_update_deployment(replicas, 1, unavailable), [rs], rs, NOW)
    reason, message = {
        "True": ("MinimumReplicasAvailable", "Deployment has minimum availability."),
        "False": ("MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
    }[state]
    assert computed.conditions == (status.new_condition("Available", state, reason, message, NOW),)


@dataclass(frozen=True)
class Rollout:
    """A Deployment of 3 replicas, before and after a step of its rollout; no Pod was ready before."""

    counts: dict[str, Any] = field(default_factory=dict)  # status of the new ReplicaSet
    current: Condition | None = None
    deadline: int | None = 60
    has_new_rs: bool = True
    updated_before: int = 0


DONE = {"replicas": 3, "ready_replicas": 3, "available_replicas": 3}


@pytest.mark.parametrize(
    ("rollout", "expected"),
    [
        pytest.param(
            Rollout(DONE),
            ("True", "NewReplicaSetAvailable", 'ReplicaSet "new" has successfully progressed.', NOW, NOW),
            id="complete",
        ),
        pytest.param(
            Rollout(DONE, progressing("True", "ReplicaSetUpdated")),
            ("True", "NewReplicaSetAvailable", 'ReplicaSet "new" has successfully progressed.', NOW, BEFORE),
            id="complete: the status stays True",
        ),
        pytest.param(
            Rollout(DONE, progressing("False", "ProgressDeadlineExceeded")),
            ("True", "NewReplicaSetAvailable", 'ReplicaSet "new" has successfully progressed.', NOW, NOW),
            id="complete after the deadline",
        ),
        pytest.param(
            Rollout(DONE, progressing("True", "NewReplicaSetAvailable")),
            ("True", "NewReplicaSetAvailable", "before", BEFORE, BEFORE),
            id="complete before",
        ),
        pytest.param(
            Rollout({"replicas": 1}),
            ("True", "ReplicaSetUpdated", 'ReplicaSet "new" is progressing.', NOW, NOW),
            id="progress, no condition before",
        ),
        pytest.param(
            Rollout({"replicas": 1}, progressing("True", "NewReplicaSetCreated")),
            ("True", "ReplicaSetUpdated", 'ReplicaSet "new" is progressing.', NOW, BEFORE),
            id="progress after the creation",
        ),
        pytest.param(
            Rollout({"replicas": 1}, progressing("True", "ReplicaSetUpdated")),
            ("True", "ReplicaSetUpdated", 'ReplicaSet "new" is progressing.', NOW, BEFORE),
            id="more progress: a new lastUpdateTime",
        ),
        pytest.param(
            Rollout({"replicas": 1}, progressing("False", "ProgressDeadlineExceeded")),
            ("True", "ReplicaSetUpdated", 'ReplicaSet "new" is progressing.', NOW, NOW),
            id="progress after the deadline",
        ),
        pytest.param(
            Rollout({"replicas": 1}, progressing("True", "NewReplicaSetAvailable"), updated_before=1),
            ("True", "NewReplicaSetAvailable", "before", BEFORE, BEFORE),
            id="a Pod of a complete rollout is replaced",
        ),
        pytest.param(
            Rollout({"replicas": 1}, progressing("True", "ReplicaSetUpdated"), updated_before=1),
            ("False", "ProgressDeadlineExceeded", 'ReplicaSet "new" has timed out progressing.', NOW, NOW),
            id="no progress for 90 of 60 s",
        ),
        pytest.param(
            Rollout({"replicas": 1}, progressing("True", "ReplicaSetUpdated"), deadline=600, updated_before=1),
            ("True", "ReplicaSetUpdated", "before", BEFORE, BEFORE),
            id="no progress for 90 of 600 s",
        ),
        pytest.param(
            Rollout({"replicas": 1}, progressing("False", "ProgressDeadlineExceeded"), updated_before=1),
            ("False", "ProgressDeadlineExceeded", "before", BEFORE, BEFORE),
            id="it has timed out before",
        ),
        pytest.param(
            Rollout(current=progressing("True", "ReplicaSetUpdated"), has_new_rs=False),
            ("False", "ProgressDeadlineExceeded", 'Deployment "web" has timed out progressing.', NOW, NOW),
            id="no new ReplicaSet: named after the Deployment",
        ),
        pytest.param(Rollout(DONE, deadline=None), None, id="no deadline"),
        pytest.param(
            Rollout(DONE, progressing("True", "ReplicaSetUpdated"), deadline=None),
            None,
            id="no deadline any more: the condition is removed",
        ),
    ],
)
def test_progressing_condition_of_a_rollout(rollout, expected):
    before = DeploymentStatus(
        replicas=rollout.updated_before,
        updated_replicas=rollout.updated_before,
        conditions=() if rollout.current is None else (rollout.current,),
    )
    deployment = rolling_update_deployment(3, 1, deadline_seconds=rollout.deadline, status=before)
    new_rs = replica_set("new", 3, status=ReplicaSetStatus(**rollout.counts)) if rollout.has_new_rs else None
    computed = status.rollout_status(deployment, [] if new_rs is None else [new_rs], new_rs, NOW)
    assert [
        (new.status, new.reason, new.message, new.last_update_time, new.last_transition_time)
        for new in computed.conditions
        if new.type == "Progressing"
    ] == ([] if expected is None else [expected])


def test_rollout_without_new_replica_set_names_the_deployment():
    deployment = rolling_update_deployment(0, deadline_seconds=60)
    complete = status.rollout_status(deployment, [], None, NOW, counts_terminating=False)
    assert complete.terminating_replicas is None
    # observedGeneration is that of the Deployment, so that a Deployment of 0 replicas is complete at once.
    assert complete.conditions[-1].message == 'Deployment "web" has successfully progressed.'


def test_rollout_shows_the_first_failure_until_it_ends():
    deployment = rolling_update_deployment(1)
    failed = status.rollout_status(deployment, [failing("a", "first"), failing("b", "second")], None, NOW)
    assert [new.message for new in failed.conditions if new.type == "ReplicaFailure"] == ["first"]
    deployment = rolling_update_deployment(1, status=failed)
    recovered = status.rollout_status(deployment, [failing("a")], None, NOW)
    assert [new.type for new in recovered.conditions] == ["Available"]
