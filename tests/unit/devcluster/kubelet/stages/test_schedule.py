"""Which object waits for which stage: a change begins anew, the same stage waits a second, who is gone is forgotten."""

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
from support.set_clock import SetClock

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


def config_map(uid: str, version: int, app: str = "web") -> dict[str, Any]:
    return {"metadata": {"name": uid, "uid": uid, "resourceVersion": str(version), "labels": {"app": app}}}


class Player:
    """Plays nothing, and notes on whom."""

    def __init__(self, path: Path) -> None:
        path.write_text(STAGE)
        self.stages: list[Stage] = read_stages([path])
        self.timers = TimerQueue()
        self.played: list[str] = []
        clock = SetClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.turns: StageSchedule[str] = StageSchedule(self.timers, self._play, clock=clock, rng=random.Random(1))

    def _play(self, turn: PendingStage[str]) -> None:
        self.turns.take(turn)
        self.turns.begin(turn)
        self.played.append(turn.uid)

    def see(self, obj: dict[str, Any]) -> bool:
        return self.turns.reschedule(self.stages, obj, "maps")

    def pass_time(self, until: float) -> None:
        while (appointment := self.timers.pop(until)) is not None:
            if appointment.act is not None:
                appointment.act(appointment.argument)


@pytest.fixture
def player(tmp_path: Path) -> Player:
    return Player(tmp_path / "stages.yaml")


@pytest.mark.virtual_time
async def test_a_change_begins_anew_and_the_same_version_does_not(player: Player):
    now = asyncio.get_running_loop().time()
    assert player.see(config_map("a", 1))
    assert not player.see(config_map("a", 1))
    assert player.see(config_map("a", 2))
    assert not player.see(config_map("a", 3, app="other"))  # for which there is no stage
    player.pass_time(now + 1)
    assert player.played == []


@pytest.mark.virtual_time
async def test_the_same_stage_waits_a_second_before_it_is_played_again(player: Player):
    now = asyncio.get_running_loop().time()
    player.see(config_map("a", 1))
    player.pass_time(now + 0.2)
    player.see(config_map("a", 2))
    player.pass_time(now + 0.9)
    assert player.played == ["a"]
    player.pass_time(now + 1.1)
    assert player.played == ["a", "a"]


@pytest.mark.virtual_time
async def test_objects_that_went_while_nobody_watched_are_forgotten(player: Player):
    now = asyncio.get_running_loop().time()
    for uid in ("a", "b"):
        player.see(config_map(uid, 1))
    player.turns.retain("maps", {"b"})
    player.pass_time(now + 1)
    assert player.played == ["b"]
    await asyncio.sleep(2)
    player.turns.retain("maps", set())
    assert player.turns._last == {}  # what was played long ago tells nothing
