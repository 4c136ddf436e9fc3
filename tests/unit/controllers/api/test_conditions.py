"""Conditions of a status."""

from __future__ import annotations

from datetime import UTC, datetime

from kubeloop.controllers.api.conditions import find_status_condition, is_status_condition_true, set_status_condition
from kubeloop.kube.objects.api_types import Condition, Struct

FIRST, LATER = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


class OwnCondition(Struct):
    """A condition of an author's own type."""

    type: str
    since: datetime


def test_transition_time_changes_with_the_status_only():
    conditions = set_status_condition([], "Ready", False, "Starting", now=FIRST, observed_generation=1)
    assert conditions == [
        {
            "type": "Ready",
            "status": "False",
            "reason": "Starting",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
    ]
    conditions = set_status_condition(conditions, "Ready", "False", "Waiting", "for pods", now=LATER)
    assert (conditions[0]["reason"], conditions[0]["lastTransitionTime"]) == ("Waiting", "2026-01-01T00:00:00Z")
    conditions = set_status_condition(conditions, "Ready", True, "Available", now=LATER)
    assert conditions[0]["lastTransitionTime"] == "2026-01-02T00:00:00Z"


def test_other_conditions_stay_in_order():
    other, own = Condition(type="Stalled", status="False", reason="No"), OwnCondition(type="Own", since=FIRST)
    conditions = set_status_condition([other, own], "Ready", True, "Available", now=FIRST)
    assert [condition["type"] for condition in conditions] == ["Stalled", "Own", "Ready"]
    conditions = set_status_condition(conditions, "Stalled", True, "Yes", now=FIRST)
    assert [condition.get("status") for condition in conditions] == ["True", None, "True"]


def test_condition_is_found_by_type():
    conditions = set_status_condition([], "Ready", True, "Available", now=FIRST)
    assert is_status_condition_true(conditions, "Ready")
    assert not is_status_condition_true(conditions, "Stalled")
    assert find_status_condition(conditions, "Stalled") is None
