"""States of zones, plans of their eviction rates, and the queue of nodes to taint."""

from __future__ import annotations

import pytest

from kubeloop.controllers.nodelifecycle.zones import (
    DisruptionPlan,
    EvictionRates,
    TaintQueue,
    ZoneState,
    plan_disruption,
)
from kubeloop.kube.objects.api_types import Condition

RATES = EvictionRates()


@pytest.mark.parametrize(
    ("ready", "not_ready", "state"),
    [
        pytest.param(0, 1, "full disruption", id="no ready node"),
        pytest.param(2, 3, "partial disruption", id="more than 55% and more than two not ready"),
        pytest.param(1, 2, "normal", id="only two not ready"),
        pytest.param(5, 4, "normal", id="less than 55% not ready"),
        pytest.param(0, 0, "normal", id="no nodes"),
    ],
)
def test_zone_state(ready: int, not_ready: int, state: ZoneState):
    assert RATES.zone_state(ready, not_ready) == state


def test_eviction_rate_depends_on_zone_state_and_size():
    assert RATES.rate("normal", 5) == 0.1
    assert RATES.rate("full disruption", 5) == 0.1
    assert RATES.rate("partial disruption", 50) == 0.0
    assert RATES.rate("partial disruption", 51) == 0.01


def conditions(ready: int, not_ready: int) -> list[Condition | None]:
    return [Condition(type="Ready", status="True")] * ready + [None] * not_ready


FULL: ZoneState = "full disruption"


@pytest.mark.parametrize(
    ("before", "nodes", "plan"),
    [
        pytest.param({}, {"a": (3, 0)}, DisruptionPlan({"a": "normal"}, {"a": 0.1}), id="new zone"),
        pytest.param({"a": "normal"}, {"a": (3, 0)}, DisruptionPlan({"a": "normal"}, {}), id="unchanged"),
        pytest.param(
            {"a": "normal", "b": "normal"},
            {"a": (3, 0), "b": (0, 3)},
            DisruptionPlan({"a": "normal", "b": FULL}, {"b": 0.1}),
            id="one zone is lost",
        ),
        pytest.param(
            {"a": "normal", "b": FULL},
            {"a": (0, 3), "b": (0, 3)},
            DisruptionPlan({"a": FULL, "b": FULL}, {"a": 0.0, "b": 0.0}, enters_full=True),
            id="all zones are lost",
        ),
        pytest.param(
            {"a": FULL, "b": FULL},
            {"a": (0, 3), "b": (0, 3)},
            DisruptionPlan({"a": FULL, "b": FULL}, {}),
            id="all zones are still lost",
        ),
        pytest.param(
            {"a": FULL, "b": FULL},
            {"a": (1, 2), "b": (0, 3)},
            DisruptionPlan({"a": "normal", "b": FULL}, {"a": 0.1, "b": 0.1}, leaves_full=True),
            id="a node is ready again",
        ),
        pytest.param({"a": "normal"}, {}, DisruptionPlan({}, {}), id="last node was deleted"),
    ],
)
def test_plan_disruption(before: dict[str, ZoneState], nodes: dict[str, tuple[int, int]], plan: DisruptionPlan):
    assert plan_disruption(before, {zone: conditions(*counts) for zone, counts in nodes.items()}, RATES) == plan


def test_queue_hands_out_one_node_per_period_in_order():
    queue = TaintQueue(0.1)
    queue.add("a")
    queue.add("b")
    queue.add("a")
    assert (queue.pop(100.0), queue.pop(100.0)) == ("a", None)
    assert queue.seconds_until_next(104.0) == 6.0
    assert (queue.contains("a"), queue.contains("b")) == (False, True)
    assert queue.pop(110.0) == "b"
    assert queue.seconds_until_next(200.0) is None


def test_removed_node_is_not_handed_out():
    queue = TaintQueue(0.1)
    queue.add("a")
    queue.remove("a")
    assert queue.pop(100.0) is None


def test_rate_of_zero_hands_out_nothing_and_a_new_rate_starts_with_a_wait():
    queue = TaintQueue(0.1)
    queue.set_rate(0.0, 100.0)
    queue.add("a")
    assert (queue.pop(1000.0), queue.seconds_until_next(1000.0)) == (None, None)
    queue.set_rate(0.01, 1000.0)
    assert queue.seconds_until_next(1000.0) == 100.0


def test_rate_of_an_unused_queue_changes_without_a_wait():
    queue = TaintQueue(0.1)
    queue.set_rate(0.01, 100.0)
    queue.add("a")
    assert queue.pop(100.0) == "a"
