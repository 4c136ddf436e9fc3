"""Binding conditions of allocated devices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.scheduler.devices.binding_conditions import (
    DeviceBindingFailed,
    has_binding_conditions,
    has_binding_timed_out,
    is_ready_for_binding,
)
from support.objects.devices import allocated, claim, typed

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def claim_with(conditions, *, required=("ready",), seconds_ago=0):
    status = allocated(("a", "d"), bindingConditions=list(required), bindingFailureConditions=["broken"])
    status["allocation"]["allocationTimestamp"] = (NOW - timedelta(seconds=seconds_ago)).isoformat()
    if conditions is not None:
        entries = [{"type": name, "status": value, "reason": "R", "message": "m"} for name, value in conditions.items()]
        status["devices"] = [{"driver": "gpu.example.com", "pool": "a", "device": "d", "conditions": entries}]
    return typed(claim("c", status=status))


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [(None, False), ({}, False), ({"ready": "False"}, False), ({"ready": "True"}, True), ({"other": "True"}, False)],
)
def test_ready_for_binding(conditions, ready):
    assert is_ready_for_binding(claim_with(conditions)) == ready


def test_claim_without_conditions_is_ready_once_it_is_allocated():
    assert is_ready_for_binding(claim_with(None, required=()))
    assert not is_ready_for_binding(typed(claim("c")))


def test_each_device_with_conditions_must_be_ready():
    allocation = allocated(("a", "without conditions"), ("a", "d"))
    allocation["allocation"]["devices"]["results"][1]["bindingConditions"] = ["ready"]
    assert not is_ready_for_binding(typed(claim("c", status=allocation)))


def test_failure_condition():
    with pytest.raises(DeviceBindingFailed, match='device binding failed: claim=c, reason=R, message="m"'):
        is_ready_for_binding(claim_with({"ready": "True", "broken": "True"}))


@pytest.mark.parametrize(
    ("required", "seconds_ago", "timed_out"), [(("ready",), 601, True), (("ready",), 599, False), ((), 601, False)]
)
def test_timeout(required, seconds_ago, timed_out):
    entry = claim_with(None, required=required, seconds_ago=seconds_ago)
    assert has_binding_timed_out(entry, NOW, 600.0) == timed_out
    assert has_binding_conditions(entry) == bool(required)
