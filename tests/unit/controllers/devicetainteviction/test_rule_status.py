"""The condition EvictionInProgress of DeviceTaintRules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.controllers.devicetainteviction.rule_status import (
    RuleCounts,
    changed_condition,
    current_condition,
    seconds_until_update,
)
from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.device_types import DeviceTaintRule

T0 = datetime(2026, 3, 1, tzinfo=UTC)
EVICTED_2 = "2 pods evicted since starting the controller."
NOT_AGAIN = "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."


def rule(effect: str = "NoExecute", *conditions, generation: int = 1) -> DeviceTaintRule:
    spec = {"deviceSelector": {}, "taint": {"key": "example.com/broken", "effect": effect}}
    metadata = {"name": "rule", "uid": "uid", "generation": generation}
    return convert(DeviceTaintRule, {"metadata": metadata, "spec": spec, "status": {"conditions": list(conditions)}})


def condition(since: float = 0, **fields):
    return {
        "type": "EvictionInProgress",
        "status": "False",
        "reason": "NotStarted",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": T0 + timedelta(seconds=since),
        **fields,
    }


@pytest.mark.parametrize(
    ("effect", "counts", "expected"),
    [
        ("NoExecute", RuleCounts(), ("False", "NotStarted", "")),
        (
            "NoExecute",
            RuleCounts(1, 1),
            ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace."),
        ),
        (
            "NoExecute",
            RuleCounts(3, 2, 2),
            (
                "True",
                "PodsPendingEviction",
                f"3 pods need to be evicted in 2 different namespaces. {EVICTED_2}",
            ),
        ),
        ("NoExecute", RuleCounts(evicted_pods=2), ("False", "Completed", EVICTED_2)),
        ("NoSchedule", RuleCounts(), ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.")),
        (
            "None",
            RuleCounts(1, 1, 0, 1, 1),
            (
                "False",
                "NoEffect",
                "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if"
                f" the effect was NoExecute. {NOT_AGAIN}",
            ),
        ),
        (
            "None",
            RuleCounts(),
            (
                "False",
                "NoEffect",
                "0 published devices selected. 0 allocated devices selected. 0 pods would be evicted in 0 different"
                f" namespaces if the effect was NoExecute. {NOT_AGAIN}",
            ),
        ),
    ],
)
def test_condition_of_a_rule(effect, counts, expected):
    changed = changed_condition(rule(effect), counts, T0)
    assert changed is not None
    assert (changed.status, changed.reason, changed.message) == expected
    assert (changed.observed_generation, changed.last_transition_time) == (1, T0)


def test_condition_that_has_not_changed_is_not_written():
    assert changed_condition(rule("NoExecute", condition()), RuleCounts(), T0) is None
    assert changed_condition(rule("NoExecute", condition(), generation=2), RuleCounts(), T0) is not None
    assert changed_condition(rule("NoExecute", condition()), RuleCounts(evicted_pods=1), T0) is not None


@pytest.mark.parametrize(
    ("conditions", "generation", "seconds"),
    [([], 1, 0), ([condition(-4)], 1, 6), ([condition(-4)], 2, 0), ([{"type": "Other", "status": "True"}], 1, 0)],
)
def test_status_waits_for_its_period_unless_the_spec_has_changed(conditions, generation, seconds):
    assert seconds_until_update(rule("NoExecute", *conditions, generation=generation), T0) == seconds


def test_condition_of_another_type_is_not_the_current_one():
    assert current_condition(rule("NoExecute", {"type": "Other", "status": "True"})) is None
