"""The pace of reconciles, in virtual time."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from kubeloop.controllers.runtime.queue.reconcile_pace import MAX_TURNS, MAX_WAIT_SECONDS, ReconcilePace
from kubeloop.kube.client.write_gate import WriteGate
from support.simulation.write_gates import FixedLimit

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(("urgent_turns", "checked_turns"), [(0, 1), (3, 4), (100, MAX_TURNS)])
async def test_reconcile_waits_for_urgent_work_for_limited_turns(urgent_turns, checked_turns):
    checks = itertools.count(1)
    await ReconcilePace(has_urgent_work=lambda: next(checks) <= urgent_turns).begin()
    assert next(checks) - 1 == checked_turns


async def test_reconciles_do_not_wait_for_each_other_while_no_pods_are_bound():
    pace = ReconcilePace()
    async with asyncio.timeout(0):
        for _ in range(100):
            await pace.begin()


async def test_reconciles_that_create_pods_begin_first():
    pace = ReconcilePace(gate=WriteGate(FixedLimit()))
    begun: list[str] = []

    async def reconcile(name: str, creates_pods: bool) -> None:
        await pace.begin(creates_pods=creates_pods)
        begun.append(name)
        await asyncio.sleep(MAX_WAIT_SECONDS / 10)
        pace.end()

    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(reconcile(name, creates_pods=name in "cd"))
    assert begun == ["a", "b", "c", "d"]  # a and b began before the others waited
    begun.clear()
    async with asyncio.TaskGroup() as group:
        for name in "abcdef":
            group.create_task(reconcile(name, creates_pods=name in "ef"))
    assert begun == ["a", "b", "e", "f", "c", "d"]


async def test_reconcile_waits_for_others_for_limited_time():
    pace, loop = ReconcilePace(gate=WriteGate(FixedLimit())), asyncio.get_running_loop()
    for _ in range(FixedLimit.VALUE):
        await pace.begin()
    started_at = loop.time()
    await pace.begin()
    assert loop.time() - started_at == pytest.approx(MAX_WAIT_SECONDS, abs=0.002)
