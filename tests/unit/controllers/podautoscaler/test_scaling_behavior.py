"""Stabilization and rate limits: pure functions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.controllers.podautoscaler.autoscaler_spec import Behavior, ScalingRules
from kubeloop.controllers.podautoscaler.scaling_behavior import (
    Recorded,
    ScaleHistory,
    limited,
    limited_by_behavior,
    scale_down_limit,
    scale_up_limit,
    stabilized,
    stabilized_by_behavior,
)
from kubeloop.kube.objects.api_types import convert

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def recorded(replicas: int, seconds_ago: float) -> Recorded:
    return Recorded(replicas, NOW - timedelta(seconds=seconds_ago))


def rules(*policies: tuple[str, int, int], select: str = "Max") -> ScalingRules:
    listed: list[dict[str, Any]] = [
        {"type": type_, "value": value, "periodSeconds": period} for type_, value, period in policies
    ]
    return convert(ScalingRules, {"policies": listed, "selectPolicy": select})


def test_history_drops_old_recommendations():
    history = ScaleHistory((recorded(5, 301), recorded(4, 300)))
    assert history.with_recommendation(2, NOW, 300).recommendations == (recorded(4, 300), recorded(2, 0))


def test_history_keeps_scalings_by_direction_for_the_longest_policy():
    behavior = Behavior(scale_up=rules(("Pods", 1, 60), ("Pods", 2, 10)), scale_down=rules(("Pods", 1, 10)))
    history = ScaleHistory(scale_ups=(recorded(1, 61), recorded(2, 59)), scale_downs=(recorded(3, 11),))
    scaled_up = history.with_scaling(4, 7, behavior, NOW)
    assert scaled_up.scale_ups == (recorded(2, 59), recorded(3, 0))
    assert scaled_up.scale_downs == history.scale_downs
    assert scaled_up.with_scaling(7, 5, behavior, NOW).scale_downs == (recorded(2, 0),)


def test_history_without_policies_keeps_only_the_last_scaling():
    behavior = Behavior(scale_up=rules(), scale_down=rules())
    history = ScaleHistory(scale_ups=(recorded(1, 1),), scale_downs=(recorded(2, 1),))
    assert history.with_scaling(4, 7, behavior, NOW).scale_ups == (recorded(3, 0),)
    assert history.with_scaling(7, 5, behavior, NOW).scale_downs == (recorded(2, 0),)


def test_highest_recommendation_of_the_window_counts():
    assert stabilized([recorded(9, 301), recorded(5, 300), recorded(4, 10)], 2, 300, NOW) == 5


@pytest.mark.parametrize(
    ("current", "desired", "expected"),
    [
        pytest.param(3, 5, (5, "DesiredWithinRange"), id="within range"),
        pytest.param(3, 0, (2, "TooFewReplicas"), id="minimum"),
        pytest.param(8, 11, (10, "TooManyReplicas"), id="maximum"),
        pytest.param(1, 9, (4, "ScaleUpLimit"), id="at least four"),
        pytest.param(3, 9, (6, "ScaleUpLimit"), id="at most twice"),
    ],
)
def test_limits_without_behavior(current, desired, expected):
    limit = limited(current, desired, 2, 10)
    assert (limit.replicas, limit.reason) == expected


@pytest.mark.parametrize(
    ("current", "desired", "replicas"),
    [
        pytest.param(3, 8, 5, id="scale up to the lowest recent recommendation"),
        pytest.param(8, 2, 7, id="scale down to the highest recent recommendation"),
        pytest.param(6, 5, 6, id="between both: no change"),
    ],
)
def test_recent_recommendations_of_both_windows_limit_the_change(current, desired, replicas):
    recommendations = [recorded(1, 60), recorded(5, 59), recorded(7, 59), recorded(9, 100)]
    assert stabilized_by_behavior(recommendations, current, desired, 60, 100, NOW) == replicas


@pytest.mark.parametrize(
    ("scaling", "limit"),
    [
        pytest.param(rules(("Pods", 4, 60), ("Percent", 100, 60)), 20, id="greatest change"),
        pytest.param(rules(("Pods", 4, 60), ("Percent", 100, 60), select="Min"), 14, id="smallest change"),
        pytest.param(rules(("Pods", 4, 60), select="Disabled"), 10, id="disabled"),
        pytest.param(rules(("Percent", 15, 60)), 12, id="percentage rounded up"),
        pytest.param(rules(("Pods", 4, 120)), 11, id="less what was added in the period"),
        pytest.param(rules(("Pods", 4, 300)), 13, id="and what was removed counts again"),
    ],
)
def test_scale_up_limit(scaling, limit):
    history = ScaleHistory(scale_ups=(recorded(3, 100),), scale_downs=(recorded(2, 200),))
    assert scale_up_limit(10, scaling, history, NOW) == limit


@pytest.mark.parametrize(
    ("scaling", "limit"),
    [
        pytest.param(rules(("Pods", 4, 60), ("Percent", 50, 60)), 5, id="greatest change"),
        pytest.param(rules(("Pods", 4, 60), ("Percent", 50, 60), select="Min"), 6, id="smallest change"),
        pytest.param(rules(("Pods", 4, 60), select="Disabled"), 10, id="disabled"),
        pytest.param(rules(("Percent", 15, 60)), 8, id="percentage rounded down"),
        pytest.param(rules(("Pods", 4, 120)), 9, id="less what was removed in the period"),
    ],
)
def test_scale_down_limit(scaling, limit):
    history = ScaleHistory(scale_downs=(recorded(3, 100),))
    assert scale_down_limit(10, scaling, history, NOW) == limit


@pytest.mark.parametrize(
    ("desired", "expected"),
    [
        pytest.param(20, (14, "ScaleUpLimit"), id="policy of scale-up"),
        pytest.param(12, (12, "DesiredWithinRange"), id="within the policies"),
        pytest.param(1, (8, "ScaleDownLimit"), id="policy of scale-down"),
    ],
)
def test_limits_of_behavior(desired, expected):
    behavior = Behavior(scale_up=rules(("Pods", 4, 60)), scale_down=rules(("Pods", 2, 60)))
    limit = limited_by_behavior(10, desired, 3, 30, behavior, ScaleHistory(), NOW)
    assert (limit.replicas, limit.reason) == expected


@pytest.mark.parametrize(
    ("desired", "expected"),
    [
        pytest.param(30, (12, "TooManyReplicas"), id="maximum"),
        pytest.param(1, (9, "TooFewReplicas"), id="minimum"),
    ],
)
def test_minimum_and_maximum_apply_with_behavior(desired, expected):
    behavior = Behavior(scale_up=rules(("Pods", 4, 60)), scale_down=rules(("Pods", 2, 60)))
    limit = limited_by_behavior(10, desired, 9, 12, behavior, ScaleHistory(), NOW)
    assert (limit.replicas, limit.reason) == expected


@pytest.mark.parametrize(
    ("current", "policies", "select", "up", "down"),
    [
        pytest.param(10, [("Percent", 10, 60)], "Max", 11, 9, id="10 %"),
        pytest.param(5, [("Percent", 50, 60)], "Max", 8, 2, id="50 % of 5: rounded up, and down"),
        pytest.param(202, [("Percent", 50, 60)], "Max", 303, 101, id="50 % of many"),
        pytest.param(7, [("Percent", 100, 60)], "Max", 14, 0, id="100 %"),
        pytest.param(10, [("Pods", 4, 60)], "Max", 14, 6, id="Pods"),
        pytest.param(10, [("Pods", 4, 60), ("Percent", 10, 60)], "Max", 14, 6, id="the larger change"),
        pytest.param(10, [("Pods", 4, 60), ("Percent", 10, 60)], "Min", 11, 9, id="the smaller change"),
        pytest.param(10, [("Pods", 4, 60)], "Disabled", 10, 10, id="disabled"),
    ],
)
def test_limits_of_policies(current, policies, select, up, down):
    assert scale_up_limit(current, rules(*policies, select=select), ScaleHistory(), NOW) == up
    assert scale_down_limit(current, rules(*policies, select=select), ScaleHistory(), NOW) == down


def test_limits_of_policies_count_from_the_start_of_their_period():
    history = ScaleHistory(scale_ups=(recorded(3, 59), recorded(9, 60)), scale_downs=(recorded(1, 10),))
    policy = rules(("Pods", 4, 60))
    assert scale_up_limit(10, policy, history, NOW) == 12  # 10 - 3 + 1 at the start
    assert scale_down_limit(10, policy, history, NOW) == 4


@pytest.mark.parametrize(
    ("desired", "limited_to"),
    [
        pytest.param(14, (14, ""), id="just at the limit of a scale-up"),
        pytest.param(15, (14, "ScaleUpLimit"), id="above it"),
        pytest.param(8, (8, ""), id="just at the limit of a scale-down"),
        pytest.param(7, (8, "ScaleDownLimit"), id="below it"),
    ],
)
def test_limits_of_behavior_are_reported_beyond_them(desired, limited_to):
    behavior = Behavior(scale_up=rules(("Pods", 4, 60)), scale_down=rules(("Pods", 2, 60)))
    limit = limited_by_behavior(10, desired, 1, 30, behavior, ScaleHistory(), NOW)
    reason = limit.reason if limit.reason.endswith("Limit") else ""
    assert (limit.replicas, reason) == limited_to
