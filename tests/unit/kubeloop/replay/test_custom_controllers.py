"""Pods of a controller that kubeloop does not have act as recorded, and are scheduled anew."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.recording.changes import Finding, RecordedChange
from kubeloop.replay.measurement import PodRun
from kubeloop.replay.replay import measure_recording, replay, replay_options
from kubeloop.replay.user_actions import read_day

OWNER = {"apiVersion": "example.com/v1", "kind": "TrainingJob", "name": "train", "uid": "t", "controller": True}
SPEC = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "3"}}}]}
FAILED = {"containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]}


def node(name: str) -> dict[str, Any]:
    size = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    status = {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name}, "spec": {}, "status": status}


def pod(name: str, phase: str = "Pending", *, bound: bool = True, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "ownerReferences": [OWNER]}
    spec = {**SPEC, **({"nodeName": "gone"} if bound else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}


class Day:
    """A recording of two nodes, and of these states of pods by time."""

    name, start, is_projected = "day.kubeloop", datetime(2026, 1, 1, tzinfo=UTC), True

    def __init__(self, *states: tuple[float, dict[str, Any]]) -> None:
        self.findings: list[Finding] = []
        self._states = states

    def changes(self) -> Iterator[RecordedChange]:
        for name in ("n1", "n2"):
            yield RecordedChange(0.0, "ADDED", "nodes", name, node(name), None, initial=True)
        before: dict[str, dict[str, Any]] = {}
        for seconds, state in sorted(self._states, key=lambda it: it[0]):
            key = f"default/{state['metadata']['name']}"
            type_ = "DELETED" if state.get("deleted") else "MODIFIED" if key in before else "ADDED"
            yield RecordedChange(seconds, type_, "pods", key, state, before.get(key))
            before[key] = state
        yield RecordedChange(300.0, "LISTED", "pods")


@pytest.fixture(scope="module")
def runs() -> dict[str, PodRun]:
    stopping = pod("c", "Running")
    stopping["metadata"] |= {"deletionTimestamp": "2026-01-01T00:02:10Z", "deletionGracePeriodSeconds": 30}
    day = Day(
        (10.0, pod("a", bound=False)), (12.0, pod("a")), (15.0, pod("a", "Running")), (75.0, pod("a", "Succeeded")),
        (10.0, pod("b", bound=False)), (11.0, pod("b")), (14.0, pod("b", "Running")),
        (34.0, pod("b", "Failed", **FAILED)),
        (100.0, pod("c", bound=False)), (100.0, pod("c")), (105.0, pod("c", "Running")),
        (130.0, stopping), (137.0, {**stopping, "deleted": True}),
    )  # fmt: skip
    result = replay(read_day(day), "default", replay_options("", seed=0))
    assert result.findings == []
    return {run.key: run for run in result.measurement.runs.values()}


def test_pods_are_created_as_recorded_and_scheduled_anew(runs: dict[str, PodRun]):
    assert {run.workload for run in runs.values()} == {"trainingjob default/train"}
    assert [run.created for run in runs.values()] == [10.0, 10.0, 100.0]
    assert [run.bound for run in runs.values()] == pytest.approx([10.0, 10.0, 100.0], abs=0.01)
    assert {runs["default/a"].node, runs["default/b"].node} == {"n1", "n2"}


def test_pods_start_run_and_fail_as_recorded(runs: dict[str, PodRun]):
    completed, failed = runs["default/a"], runs["default/b"]
    assert (completed.ended, completed.failed) == (pytest.approx(10.0 + 3.0 + 60.0, abs=0.1), False)
    assert (failed.ended, failed.failed) == (pytest.approx(10.0 + 3.0 + 20.0, abs=0.1), True)


def test_pods_are_deleted_as_recorded(runs: dict[str, PodRun]):
    run = runs["default/c"]
    assert (run.deleted, run.failed) == (pytest.approx(137.0, abs=0.1), False)


def test_first_sample_has_nodes_that_are_listed_after_other_resources():
    class SlowLists(Day):
        def changes(self) -> Iterator[RecordedChange]:
            yield RecordedChange(0.01, "LISTED", "namespaces")
            yield from super().changes()

    day = SlowLists((10.0, pod("a", bound=False)))
    first = measure_recording(day, read_day(day)).measurement.samples[0]
    assert (first.seconds, {pool.nodes for pool in first.pools.values()}) == (0.0, {2})
