"""Times of recorded pods, and the annotations that give them to simulated pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.replay.pod_times import PodTimes, WorkloadTimes


def pod(uid: str, phase: str = "Pending", *, node: str = "", ready: bool = False, **parts: Any) -> dict[str, Any]:
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}], **parts.pop("status", {})}
    metadata = {"name": uid, "namespace": "default", "uid": uid, **parts}
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": status}


def observe(times: WorkloadTimes, uid: str, *states: tuple[float, dict[str, Any]], initial: bool = False) -> None:
    for seconds, state in states:
        times.observe(seconds, state, "job default/a", initial=initial)


def test_completed_pod_has_start_and_run_times():
    times = WorkloadTimes()
    observe(
        times,
        "a",
        (1.0, pod("a")),
        (3.0, pod("a", node="n")),
        (5.0, pod("a", "Running", node="n", ready=True)),
        (35.0, pod("a", "Succeeded", node="n")),
    )
    assert times.of("job default/a", 0) == PodTimes(start=2.0, run=30.0)


def test_failed_pod_has_its_exit_code():
    times = WorkloadTimes()
    ended = {"containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}
    observe(times, "a", (1.0, pod("a", "Running", node="n")), (4.0, pod("a", "Failed", node="n", status=ended)))
    recorded = times.of("job default/a", 0)
    assert recorded is not None
    assert recorded.markers() == {"start-delay-seconds": "0.000", "run-seconds": "3.000", "exit-code": "3"}


def test_pod_that_is_deleted_does_not_end_by_itself():
    times = WorkloadTimes()
    stopped = pod("a", "Succeeded", node="n", deletionTimestamp="2026-01-01T00:00:00Z")
    observe(
        times,
        "a",
        (1.0, pod("a", node="n")),
        (2.0, pod("a", "Running", node="n")),
        (6.0, pod("a", "Running", node="n", ready=True)),
        (9.0, stopped),
    )
    times.deleted(9.5, stopped)
    assert times.of("job default/a", 0) == PodTimes(start=5.0, stop=0.5)
    assert PodTimes(stop=0.5).markers() == {"stop-seconds": "0.500"}


def test_restarted_container_has_its_crashes():
    times = WorkloadTimes()
    last = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:07Z", "exitCode": 2}
    restarted = {"containerStatuses": [{"restartCount": 3, "lastState": {"terminated": last}}]}
    observe(times, "a", (1.0, pod("a", "Running", node="n", ready=True, status=restarted)))
    recorded = times.of("job default/a", 0)
    assert recorded is not None
    assert recorded.markers() == {
        "start-delay-seconds": "0.000",
        "run-seconds": "7.000",
        "exit-code": "2",
        "crashes": "3",
    }


def test_further_pods_have_the_times_of_the_first_ones():
    times = WorkloadTimes()
    for number in range(2):
        uid = f"p{number}"
        observe(times, uid, (0.0, pod(uid, node="n")), (1.0 + number, pod(uid, "Running", node="n", ready=True)))
    starts = [times.of("job default/a", number) for number in range(3)]
    assert [it and it.start for it in starts] == [1.0, 2.0, 1.0]
    assert times.of("job default/other", 0) is None
    assert times.medians() == {"": PodTimes(start=1.5), "job default/a": PodTimes(start=1.5)}


def test_pods_of_the_start_are_not_those_that_a_workload_creates():
    times = WorkloadTimes()
    observe(times, "a", (0.0, pod("a", "Running", node="n")), (8.0, pod("a", "Succeeded", node="n")), initial=True)
    assert times.of("job default/a", 0) is None
    assert times.of_initial("a") == PodTimes(run=8.0)


def test_time_to_stop_begins_when_a_failed_node_returns():
    times = WorkloadTimes()
    stopped = pod("a", "Running", node="n", deletionTimestamp="2026-01-01T00:00:00Z")
    observe(times, "a", (1.0, pod("a", "Running", node="n", ready=True)), (9.0, stopped))
    times.node_returned(20.0, "other")
    times.node_returned(40.0, "n")
    times.deleted(41.5, stopped)
    times.node_returned(60.0, "n")
    recorded = times.of("job default/a", 0)
    assert recorded is not None
    assert recorded.stop == 1.5


def test_creation_times_keep_the_order_of_the_recording():
    times = WorkloadTimes()
    for uid in ("b", "a", "c"):
        observe(times, uid, (1.0, pod(uid)))
    created = [times.created("job default/a", number) for number in range(4)]
    assert created == pytest.approx([1.0, 1.00001, 1.00002, None])


@pytest.mark.parametrize(
    ("bound", "seconds"),
    [
        ([5.0, 5.0004, 5.0008], 0.0004),
        ([5.0, 5.02, 5.04], 0.001),  # kube-scheduler waits for something else
        ([5.0, 5.0, 5.0], 0.00001),  # recorded in virtual time
        ([5.0], 0.001),
    ],
)
def test_attempt_takes_at_most_the_interval_between_bindings(bound: list[float], seconds: float):
    times = WorkloadTimes()
    for number, bound_at in enumerate(bound):
        uid = str(number)
        observe(times, uid, (1.0, pod(uid)), (bound_at, pod(uid, node="n")))
    assert times.attempt_seconds() == pytest.approx(seconds)
