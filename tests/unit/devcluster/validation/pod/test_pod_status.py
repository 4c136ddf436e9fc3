"""Validation of writes to the status of pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.resources import PODS
from support.validation_causes import pod, update_causes

JSON = dict[str, Any]


def terminated_and_next(*, action: str = "Restart", operator: str = "In", **state: Any) -> tuple[JSON, JSON]:
    rules = [{"action": action, "exitCodes": {"operator": operator, "values": [42]}}]
    old = pod(containers=[{"name": "c", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rules}])
    status = {"name": "c", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    old["status"] = {"containerStatuses": [{**status, "state": {"terminated": {"exitCode": 42}}}]}
    return old, {**old, "status": {"containerStatuses": [{**status, "state": state}]}}


@pytest.mark.parametrize(
    ("action", "operator", "allowed"),
    [("Restart", "In", True), ("Restart", "NotIn", False), ("RestartAllContainers", "NotIn", True)],
)
def test_terminated_container_restarts_by_its_rules(action: str, operator: str, allowed: bool):
    old, new = terminated_and_next(action=action, operator=operator, running={})
    forbidden = ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"]
    assert update_causes(PODS, old, new, "status") == ([] if allowed else forbidden)


def test_pod_that_never_restarts_stays_terminated() -> None:
    def status(**state: Any) -> JSON:
        return {**pod(restartPolicy="Never"), "status": {"containerStatuses": [{"name": "c", "state": state}]}}

    terminated, running = status(terminated={"exitCode": 0}), status(running={})
    assert update_causes(PODS, running, terminated, "status") == []
    assert update_causes(PODS, terminated, running, "status") == [
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    ]


def test_qos_class_is_immutable() -> None:
    old, new = {**pod(), "status": {"qosClass": "BestEffort"}}, {**pod(), "status": {"qosClass": "Burstable"}}
    assert update_causes(PODS, old, new, "status") == [
        'status.qosClass: Invalid value: "Burstable": field is immutable'
    ]
