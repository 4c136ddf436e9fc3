"""Schedule of stages: rescheduling after changes, minimum delay of repeated stages, deleted objects."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubeloop.devcluster.kubelet.stages.files import Stage, read_stages
from kubeloop.devcluster.kubelet.stages.schedule import PendingStage, StageSchedule
from kubeloop.devcluster.simulation.timers import TimerQueue
from support.simulation.set_clock import SetClock

STAGE = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: one}
spec:
  resourceRef: {apiGroup: v1, kind: ConfigMap}
  selector: {matchLabels: {app: web}}
  delay: {durationMilliseconds: 100}
  next: {delete: true}
"""


SLOW_STAGE = STAGE.replace(
    "matchLabels: {app: web}",
    """matchExpressions: [{key: '.metadata.labels.app | test("^w")', operator: In, values: ['true']}]""",
)
"""A stage with an expression that is evaluated in the background."""


def config_map(uid: str, version: int, app: str = "web") -> dict[str, Any]:
    return {"metadata": {"name": uid, "uid": uid, "resourceVersion": str(version), "labels": {"app": app}}}


class RecordingSchedule:
    """A schedule whose stages are only recorded: `applied` has the uids of their objects."""

    def __init__(self, path: Path, text: str = STAGE) -> None:
        path.write_text(text)
        self.stages: list[Stage] = read_stages([path])
        self.timers = TimerQueue()
        self.applied: list[str] = []
        self.woken = asyncio.Event()
        clock = SetClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.schedule: StageSchedule[str] = StageSchedule(
            self.stages, self.timers, self._record, self.woken.set, clock=clock, rng=random.Random(1)
        )

    def _record(self, pending: PendingStage[str]) -> None:
        self.schedule.take(pending)
        self.schedule.begin(pending)
        self.applied.append(pending.uid)

    def reschedule(self, obj: dict[str, Any]) -> bool:
        return self.schedule.reschedule(self.stages, obj, "maps")

    def run_until(self, until: float) -> None:
        """Run the timers that are due at loop time `until`."""
        while (timer := self.timers.pop(until)) is not None:
            if timer.act is not None:
                timer.act(timer.argument)


@pytest.fixture
def slow_recording(tmp_path: Path) -> RecordingSchedule:
    return RecordingSchedule(tmp_path / "stages.yaml", SLOW_STAGE)


@pytest.fixture
def recording(tmp_path: Path) -> RecordingSchedule:
    return RecordingSchedule(tmp_path / "stages.yaml")


@pytest.mark.virtual_time
async def test_object_is_rescheduled_only_after_change(recording: RecordingSchedule):
    now = asyncio.get_running_loop().time()
    assert recording.reschedule(config_map("a", 1))
    assert not recording.reschedule(config_map("a", 1))
    assert recording.reschedule(config_map("a", 2))
    assert not recording.reschedule(config_map("a", 3, app="other"))  # no stage matches
    recording.run_until(now + 1)
    assert recording.applied == []


@pytest.mark.virtual_time
async def test_repeated_stage_waits_at_least_one_second(recording: RecordingSchedule):
    now = asyncio.get_running_loop().time()
    recording.reschedule(config_map("a", 1))
    recording.run_until(now + 0.2)
    recording.reschedule(config_map("a", 2))
    recording.run_until(now + 0.9)
    assert recording.applied == ["a"]
    recording.run_until(now + 1.1)
    assert recording.applied == ["a", "a"]


@pytest.mark.virtual_time
async def test_retain_forgets_objects_that_are_not_listed(recording: RecordingSchedule):
    now = asyncio.get_running_loop().time()
    for uid in ("a", "b"):
        recording.reschedule(config_map(uid, 1))
    recording.schedule.retain("maps", {"b"})
    recording.run_until(now + 1)
    assert recording.applied == ["b"]
    await asyncio.sleep(2)
    recording.schedule.retain("maps", set())
    assert recording.schedule._last == {}  # entries older than a second are removed


async def test_slow_expression_is_evaluated_in_the_background(slow_recording: RecordingSchedule):
    loop = asyncio.get_running_loop()
    assert not slow_recording.reschedule(config_map("a", 1))
    assert not slow_recording.woken.is_set()
    await asyncio.wait_for(slow_recording.woken.wait(), 60)
    slow_recording.run_until(loop.time() + 1)
    assert slow_recording.applied == ["a"]


async def test_result_for_changed_deleted_or_unlisted_object_is_dropped(slow_recording: RecordingSchedule):
    loop = asyncio.get_running_loop()
    for uid in ("a", "b", "c", "d"):
        slow_recording.reschedule(config_map(uid, 1))
    slow_recording.reschedule(config_map("a", 2, app="db"))
    slow_recording.schedule.forget("b")
    slow_recording.schedule.retain("maps", {"a", "d"})
    await loop.shutdown_default_executor()
    await asyncio.sleep(0)  # results are received
    slow_recording.run_until(loop.time() + 1)
    assert slow_recording.applied == ["d"]
