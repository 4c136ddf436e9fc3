"""Conditions of a status."""

from __future__ import annotations

from datetime import UTC, datetime

from kubeloop.controllers.api.conditions import find_condition, is_condition_true, set_condition
from kubeloop.kube.objects.api_types import Condition

FIRST, LATER = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


def test_transition_time_changes_with_the_status_only():
    conditions = set_condition([], "Ready", False, "Starting", now=FIRST, observed_generation=1)
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
    conditions = set_condition(conditions, "Ready", "False", "Waiting", "for pods", now=LATER)
    assert (conditions[0]["reason"], conditions[0]["lastTransitionTime"]) == ("Waiting", "2026-01-01T00:00:00Z")
    conditions = set_condition(conditions, "Ready", True, "Available", now=LATER)
    assert conditions[0]["lastTransitionTime"] == "2026-01-02T00:00:00Z"


def test_other_conditions_stay_in_order():
    other = Condition(type="Stalled", status="False", reason="No")
    conditions = set_condition([other], "Ready", True, "Available", now=FIRST)
    assert [condition["type"] for condition in conditions] == ["Stalled", "Ready"]
    conditions = set_condition(conditions, "Stalled", True, "Yes", now=FIRST)
    assert [condition["status"] for condition in conditions] == ["True", "True"]


def test_condition_is_found_by_type():
    conditions = set_condition([], "Ready", True, "Available", now=FIRST)
    assert is_condition_true(conditions, "Ready")
    assert not is_condition_true(conditions, "Stalled")
    assert find_condition(conditions, "Stalled") is None
