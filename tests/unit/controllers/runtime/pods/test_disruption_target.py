"""The condition DisruptionTarget."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubeloop.controllers.runtime.pods.disruption_target import disruption_target, pod_status_patch
from kubeloop.kube.objects.api_types import Condition, Pod, PodStatus, convert

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "since"),
    [
        pytest.param("True", "2026-01-01T00:00:00Z", id="already set"),
        pytest.param("False", "2026-01-02T00:00:00Z", id="set again"),
    ],
)
def test_condition_keeps_the_time_of_a_true_one(status, since):
    condition = {"type": "DisruptionTarget", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    pod = convert(Pod, {"metadata": {"generation": 2, "uid": "u"}, "status": {"conditions": [condition]}})
    assert disruption_target(pod, "Reason", "message", NOW) == {
        "type": "DisruptionTarget",
        "status": "True",
        "observedGeneration": 2,
        "reason": "Reason",
        "message": "message",
        "lastTransitionTime": since,
    }
    assert pod_status_patch(pod, phase="Failed") == {"metadata": {"uid": "u"}, "status": {"phase": "Failed"}}


def test_patch_appends_new_conditions():
    pod = Pod(status=PodStatus(conditions=(Condition(type="Ready"), Condition(type="PodScheduled"))))
    patch = pod_status_patch(pod, {"type": "DisruptionTarget"}, {"type": "Ready", "status": "False"})
    assert patch["status"] == {
        "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PodScheduled"}, {"type": "DisruptionTarget"}],
        "conditions": [{"type": "DisruptionTarget"}, {"type": "Ready", "status": "False"}],
    }
