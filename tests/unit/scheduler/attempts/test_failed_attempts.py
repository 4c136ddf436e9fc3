"""Failed attempts: undone reservations, requeued pods, events and conditions."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.results import unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.attempts.failed_attempts import skip_deleted
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, Registration
from support.scheduling.plugin_cluster import PluginCluster, make_node, make_pod
from support.scheduling.scheduling_attempts import SchedulingAttempts

REJECTED = unschedulable("Mine", "not now")
ERROR = Status(Code.ERROR, ("broken",), "Mine")


class Reservation:
    """Stands in for the profile's reserve points."""

    def __init__(self) -> None:
        self.unreserved: list[tuple[str, str]] = []

    def run_unreserve(self, state: Any, pod: PodInfo, node_name: str) -> None:
        self.unreserved.append((pod.key, node_name))


class Failures(SchedulingAttempts):
    """FailedAttempts with a queue whose plugin "Mine" waits for deletions of pods, and one pod that is attempted."""

    def __init__(self, clock: Any) -> None:
        hints = QueueingHintMap([Registration("Mine", events.ASSIGNED_POD_DELETE, None)])
        super().__init__(PluginCluster([make_node("n")]), clock, {"default-scheduler": hints})
        self.reservation = Reservation()
        self.pod = make_pod("p")

    def attempt(self, pod: Pod, *, assumed: bool = False) -> Attempt:
        """Return an attempt to schedule a new pod."""
        framework: Any = SimpleNamespace(reserve=self.reservation, profile_name="default-scheduler")
        attempt = Attempt(framework, self.pop(pod))
        if assumed:
            attempt.node, attempt.pod_info = "n", PodInfo(make_pod(pod.metadata.name, "n"))
            self.cluster.cache.assume_pod(attempt.pod_info)
        return attempt


@pytest.fixture
def failures(clock: Any) -> Failures:
    return Failures(clock)


async def test_attempt_that_ended_in_an_error_is_retried_after_backoff(failures: Failures) -> None:
    failures.failed.requeue(failures.attempt(failures.pod), "broken")
    assert failures.queue_of("p") == "backoff"
    assert failures.messages == ["broken"]
    assert len(failures.patches) == 1
    assert "p" not in failures.queue.in_flight


@pytest.mark.parametrize("change", ["deleted", "recreated", "bound"])
async def test_pod_that_changed_meanwhile_is_neither_requeued_nor_reported(failures: Failures, change: str) -> None:
    attempt = failures.attempt(failures.pod)
    if change == "deleted":
        failures.cluster.pods.remove("default/p")
    else:
        failures.cluster.pods.put("default/p", make_pod("p", "n") if change == "bound" else make_pod("p", uid="new"))
    failures.failed.requeue(attempt, "broken")
    assert (failures.queue_of("p"), failures.messages, len(failures.patches)) == ("", [], 0)
    assert "p" not in failures.queue.in_flight


@pytest.mark.parametrize("handler", ["not_reserved", "not_bound"])
@pytest.mark.parametrize(
    ("status", "queue", "message"),
    [
        pytest.param(REJECTED, "unschedulable", "0/1 nodes are available: 1 not now.", id="rejected"),
        pytest.param(ERROR, "backoff", "broken", id="error"),
    ],
)
async def test_assumed_pod_is_unreserved_forgotten_and_requeued(
    failures: Failures, handler: str, status: Status, queue: str, message: str
) -> None:
    attempt = failures.attempt(failures.pod, assumed=True)
    getattr(failures.failed, handler)(attempt, status)
    assert failures.reservation.unreserved == [("default/p", "n")]
    assert failures.cluster.cache.assumed_pods() == []
    assert failures.queue_of("p") == queue
    assert failures.messages == [message]


@pytest.mark.parametrize("status", [REJECTED, ERROR], ids=["rejected", "error"])
async def test_room_of_a_pod_that_was_not_bound_retries_other_pods(
    failures: Failures, monkeypatch: pytest.MonkeyPatch, status: Status
) -> None:
    waiting, attempt = failures.attempt(make_pod("other")), failures.attempt(failures.pod, assumed=True)
    waiting.queued.unschedulable_plugins = {"Mine"}
    failures.queue.add_unschedulable_if_not_present(waiting.queued)
    assert failures.queue_of("other") == "unschedulable"
    moves = []
    move_all = failures.queue.move_all_to_active_or_backoff
    monkeypatch.setattr(
        failures.queue,
        "move_all_to_active_or_backoff",
        lambda event, *more: (moves.append(event), move_all(event, *more)),
    )
    failures.failed.not_bound(attempt, status)
    assert failures.queue_of("other") in ("active", "backoff")
    assert moves == [events.ASSIGNED_POD_DELETE]


@pytest.mark.parametrize("skipped", [False, True])
def test_only_pods_that_are_being_deleted_are_skipped(failures: Failures, skipped: bool) -> None:
    pod = make_pod("p")
    timestamp = datetime(2026, 1, 1, tzinfo=UTC) if skipped else None
    pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=timestamp))
    assert skip_deleted(failures.context, pod) is skipped
    assert failures.messages == ["skip schedule deleting pod: default/p"] * skipped
