"""Moves of unschedulable pods after an event, in slices (queue/event_moves.py)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Node
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.metrics import NO_METRICS
from kubeloop.scheduler.queue import event_moves
from kubeloop.scheduler.queue.event_moves import EventMoves
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.scheduler.queue.pod_queues import PodQueues
from kubeloop.scheduler.queue.pre_enqueue import PreEnqueue
from kubeloop.scheduler.queue.queue_settings import QueueObserver, QueueSettings
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap, QueueingHints, QueueingStrategy, Registration

COUNT = 25


class Moves(EventMoves):
    """Moves of COUNT pods that NodeResourcesFit rejected."""

    def __init__(self, queued: Any) -> None:
        queues = PodQueues(
            lambda queued: queued.key,
            lambda: 0,
            PreEnqueue({}, {}, lambda *_: None),
            Nominator(lambda key: None),
            QueueSettings(),
            QueueObserver(),
        )
        self.pods: list[QueuedPodInfo] = [
            queued(f"p{number:02}", unschedulable_plugins={"NodeResourcesFit"}) for number in range(COUNT)
        ]
        for pod in self.pods:
            queues.requeue(pod, QueueingStrategy.SKIP, "Event")
        self.queues = queues
        maps = {"": QueueingHintMap([Registration("NodeResourcesFit", events.NODE_ADD, None)])}
        super().__init__(queues, QueueingHints(maps, NO_METRICS, int))

    def move_all(self) -> None:
        self.move(self.pods, events.NODE_ADD, None, Node())

    @property
    def moved(self) -> int:
        return len(self.queues.active)


@pytest.fixture
def moves(queued: Any, monkeypatch: pytest.MonkeyPatch) -> Moves:
    monkeypatch.setattr(event_moves, "_SLICE_PODS", 10 * (1 + event_moves._MOVED_POD_COST))
    return Moves(queued)


async def test_pods_are_moved_in_slices(moves: Moves) -> None:
    running = asyncio.create_task(moves.run())
    await asyncio.sleep(0)
    moves.move_all()
    moved = {moves.moved}
    while moves.pending:
        await asyncio.sleep(0)
        moved.add(moves.moved)
    assert moved == {10, 20, 25}
    running.cancel()


async def test_pod_that_was_tried_between_two_slices_is_not_moved(moves: Moves) -> None:
    running = asyncio.create_task(moves.run())
    await asyncio.sleep(0)
    moves.move_all()
    retried = moves.pods[-1]
    retried.timestamp_ns += 1
    while moves.pending:
        await asyncio.sleep(0)
    assert (moves.moved, moves.queues.get(retried.key)) == (COUNT - 1, ("unschedulable", retried))
    running.cancel()


async def test_cancelled_run_moves_the_rest_at_once(moves: Moves) -> None:
    running = asyncio.create_task(moves.run())
    await asyncio.sleep(0)
    moves.move_all()
    running.cancel()
    await asyncio.wait([running])
    assert (moves.moved, len(moves.pending)) == (COUNT, 0)


async def test_too_many_pending_moves_are_done_at_once(moves: Moves, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_moves, "_MAX_PENDING_MOVES", 0)
    running = asyncio.create_task(moves.run())
    await asyncio.sleep(0)
    moves.move_all()
    assert (moves.moved, len(moves.pending)) == (COUNT, 0)
    running.cancel()


def test_pods_are_moved_at_once_without_run(moves: Moves) -> None:
    moves.move_all()
    assert (moves.moved, len(moves.pending)) == (COUNT, 0)
