"""The context of a request: time, uids, and computations of limited length."""

from __future__ import annotations

import threading

import pytest

from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.slow_work import LOOP_BUDGET, LoopBudget, Suspended, start
from support.apiserver.request_contexts import request_context

PODS = "/api/v1/namespaces/default/pods"


class Outcome:
    def __init__(self, cost: float) -> None:
        self.cost = cost


class Computation:
    """A computation of a cost. threads: True for each complete run on the event loop's thread, else False."""

    def __init__(self, cost: float) -> None:
        self._cost = cost
        self.on_loop: list[bool] = []

    def run(self, values: object, budget: float) -> Outcome:
        return Outcome(self._cost)

    def __call__(self, budget: LoopBudget) -> float:
        cost = budget.run(self, {}).cost
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        return cost


@pytest.fixture
def context() -> RequestContext:
    return request_context("POST", PODS)


def test_now_and_uid_come_from_clock_and_random_source(context: RequestContext):
    assert context.now() == "2026-01-01T00:00:00Z"
    assert context.new_uid() == request_context("POST", PODS).new_uid() != context.new_uid()


def test_cheap_computation_runs_on_the_event_loop(context: RequestContext):
    computation = Computation(1)
    assert start(context.compute(computation)) == 1
    assert computation.on_loop == [True]


async def test_expensive_computation_runs_in_a_thread(context: RequestContext):
    computation = Computation(LOOP_BUDGET)
    suspended = start(context.compute(computation))
    assert isinstance(suspended, Suspended)
    assert await suspended() == LOOP_BUDGET
    assert computation.on_loop == [False]


async def test_computations_share_a_budget_until_the_request_waits(context: RequestContext):
    half = Computation(LOOP_BUDGET / 2)
    assert start(context.compute(half)) == LOOP_BUDGET / 2
    suspended = start(context.compute(half))
    assert isinstance(suspended, Suspended)
    await suspended()
    assert start(context.compute(half)) == LOOP_BUDGET / 2
    assert half.on_loop == [True, False, True]
