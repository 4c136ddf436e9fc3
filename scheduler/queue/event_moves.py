"""Moves of unschedulable pods after a cluster event, in slices between which the event loop's other tasks run.

Source: movePodsToActiveOrBackoffQueue of v1.36, which moves all pods at once.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import ClusterEvent
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.queue.pod_queues import PodQueues
from kubeloop.scheduler.queue.queueing_hints import HintMemo, QueueingHints, QueueingStrategy

_SLICE_PODS = 10_000  # pods per slice; between slices the loop's other tasks run ...
_MOVED_POD_COST = 9  # ... and a pod that is moved counts for this many more: some 10 us
_MAX_PENDING_MOVES = 16  # events whose moves may be pending


class _Move(msgspec.Struct):
    """An event and the candidates to move. Timestamps detect a pod that was tried in the meantime."""

    candidates: list[tuple[QueuedPodInfo, int]]
    event: ClusterEvent
    old: Any
    new: Any
    memo: HintMemo | None
    done: int = 0


class EventMoves:
    """Moves those unschedulable pods that an event may make schedulable.

    pending: moves that are not done yet; no pod may be popped meanwhile. Without run(), a move is done at once.
    """

    def __init__(self, queues: PodQueues, hints: QueueingHints) -> None:
        self._queues = queues
        self._hints = hints
        self.pending: deque[_Move] = deque()
        self._any_pending = asyncio.Event()
        self._run_in_slices = False  # run() is active and processes the remaining slices

    def move(self, candidates: Iterable[QueuedPodInfo], event: ClusterEvent, old: Any, new: Any) -> None:
        """Move those of the candidates whose queueing hints return that the event may make them schedulable."""
        memo: HintMemo | None = None if event.resource == events.PENDING_POD_RESOURCE else {}
        move = _Move([(queued, queued.timestamp_ns) for queued in candidates], event, old, new, memo)
        if not self._run_slice(move, sliced=self._run_in_slices and len(self.pending) < _MAX_PENDING_MOVES):
            self.pending.append(move)
            self._any_pending.set()

    def _run_slice(self, move: _Move, *, sliced: bool) -> bool:
        """Continue a move until it is done (True), or, if sliced, until the slice is used up (False)."""
        event, unschedulable = move.event, self._queues.unschedulable
        left = _SLICE_PODS if sliced else math.inf
        while move.done < len(move.candidates):
            if left <= 0:
                return False
            left -= 1
            queued, timestamp_ns = move.candidates[move.done]
            move.done += 1
            if queued.timestamp_ns != timestamp_ns or unschedulable.get(queued.key) is not queued:
                continue  # moved, or tried again after the event, between two slices
            if queued.gated and not any(events.matches(registered, event) for registered in queued.gating_events):
                continue
            strategy = self._hints.strategy(queued, event, move.old, move.new, move.memo)
            if strategy is not QueueingStrategy.SKIP:
                left -= _MOVED_POD_COST
                unschedulable.discard(queued.key)
                self._queues.requeue(queued, strategy, event.label)
        return True

    async def run(self) -> None:
        """Process pending moves, slice by slice, until cancelled; the rest is then moved at once."""
        self._run_in_slices = True
        try:
            while True:
                await self._any_pending.wait()
                await asyncio.sleep(0)
                if self._run_slice(self.pending[0], sliced=True):
                    self.pending.popleft()
                    if not self.pending:
                        self._any_pending.clear()
                        self._queues.may_pop.set()
        finally:
            self._run_in_slices = False
            while self.pending:
                self._run_slice(self.pending.popleft(), sliced=False)
