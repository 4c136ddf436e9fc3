"""Conditions of objects."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.conditions import condition_of, is_true, set_condition

JSON = dict[str, Any]
READY: JSON = {"type": "Ready", "status": "True", "lastTransitionTime": "t1"}
OTHER: JSON = {"type": "Other", "status": "False", "lastTransitionTime": "t1"}


@pytest.mark.parametrize(
    ("obj", "condition", "value"),
    [
        pytest.param({"status": {"conditions": [OTHER, READY]}}, READY, True, id="true"),
        pytest.param({"status": {"conditions": [{**READY, "status": "Unknown"}]}}, {**READY, "status": "Unknown"},
                     False, id="unknown"),
        pytest.param({"status": {"conditions": [OTHER]}}, None, False, id="another type"),
        pytest.param({"status": {"conditions": None}}, None, False, id="null conditions"),
        pytest.param({"status": None}, None, False, id="null status"),
        pytest.param({}, None, False, id="no status"),
    ],
)  # fmt: skip
def test_condition_of_a_type(obj: JSON, condition: JSON | None, value: bool):
    assert (condition_of(obj, "Ready"), is_true(obj, "Ready")) == (condition, value)


@pytest.mark.parametrize(
    ("old", "time"),
    [
        pytest.param([OTHER, READY], "t1", id="same status keeps the transition time"),
        pytest.param([OTHER, {**READY, "status": "False"}], "t2", id="new status sets the transition time"),
        pytest.param([OTHER], "t2", id="new condition is appended"),
    ],
)
def test_set_condition_replaces_the_one_of_its_type(old: list[JSON], time: str):
    new = {"type": "Ready", "status": "True", "lastTransitionTime": "t2", "reason": "New"}
    assert set_condition(old, new) == [OTHER, {**new, "lastTransitionTime": time}]
    assert old[0] is OTHER
