"""Triggers of a reconcile."""

from __future__ import annotations

from kubeloop.controllers.runtime.reconcile_triggers import ReconcileTriggers


def test_triggers_are_distinct_and_cleared_by_pop():
    triggers = ReconcileTriggers()
    for reason in ("pod added", "pod deleted", "pod added", ""):
        triggers.add("ns/web", reason)
    assert triggers.pop("ns/web") == "pod added, pod deleted"
    assert triggers.pop("ns/web") == "retry or time"


def test_triggers_per_key_are_limited_to_four():
    triggers = ReconcileTriggers()
    for number in range(6):
        triggers.add("ns/web", str(number))
    assert triggers.pop("ns/web") == "0, 1, 2, 3"
