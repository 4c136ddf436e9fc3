"""Validation of writes to the status of pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.validation.pod.pod_status import validate_pod_status_update
from kubeloop.kube.objects.resources import PODS
from support.objects.validation_causes import pod, update_causes, validator_causes

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


@pytest.mark.parametrize(
    ("policy", "exit_code", "causes"),
    [
        pytest.param("Always", 0, [], id="Always"),
        pytest.param("OnFailure", 1, [], id="OnFailure after a failure"),
        pytest.param(
            "OnFailure",
            0,
            ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"],
            id="OnFailure after success",
        ),
    ],
)
def test_terminated_container_restarts_by_its_policy(policy: str, exit_code: int, causes: list[str]) -> None:
    states = ({"running": {}}, {"terminated": {"exitCode": exit_code}})
    new, old = (
        {
            "metadata": {},
            "spec": {"restartPolicy": policy, "containers": [{"name": "c"}]},
            "status": {"containerStatuses": [{"name": "c", "state": state}]},
        }
        for state in states
    )
    assert validator_causes(validate_pod_status_update, new, old) == causes


@pytest.mark.parametrize(
    ("status", "causes"),
    [
        pytest.param({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}, [], id="dual stack"),
        pytest.param(
            {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]},
            [
                'status.podIPs: Invalid value: [{"IP":"10.0.0.1"},{"IP":"10.0.0.2"}]: '
                "may specify no more than one IP for each IP family"
            ],
            id="two addresses of one family",
        ),
        pytest.param(
            {"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]},
            ['status.hostIPs[0].ip: Invalid value: "10.0.0.2": must be equal to `hostIP`'],
            id="host address that differs",
        ),
        pytest.param(
            {"observedGeneration": -1},
            ["status.observedGeneration: Invalid value: -1: must be a non-negative integer"],
            id="negative generation",
        ),
        pytest.param(
            {"resourceClaimStatuses": [{"name": "gpu"}]},
            [
                'status.resourceClaimStatuses[0].name: Invalid value: "gpu": '
                "must match the name of an entry in `spec.resourceClaims`"
            ],
            id="unknown claim",
        ),
        pytest.param(
            {
                "resourceClaimStatuses": [],
                "nodeAllocatableResourceClaimStatuses": [
                    {"resourceClaimName": "c", "resources": {"cpu": "1", "example.com/gpu": "1", "memory": "-1"}},
                    {"containers": ["a"]},
                ],
            },
            [
                'status.nodeAllocatableResourceClaimStatuses[0].resourceClaimName: Invalid value: "c": no mapping '
                "found in pod reference",
                "status.nodeAllocatableResourceClaimStatuses[0].containers: Required value: must not be empty",
                "status.nodeAllocatableResourceClaimStatuses[0].resources[example.com/gpu]: Invalid value: "
                '"example.com/gpu": must be a node allocatable resource name',
                'status.nodeAllocatableResourceClaimStatuses[0].resources[memory]: Invalid value: "-1": must be '
                "non-negative",
                "status.nodeAllocatableResourceClaimStatuses[1].resourceClaimName: Required value: must not be empty",
                'status.nodeAllocatableResourceClaimStatuses[1].resourceClaimName: Invalid value: "": no mapping '
                "found in pod reference",
                "status.nodeAllocatableResourceClaimStatuses[1].resources: Required value: must not be empty",
            ],
            id="claims that take resources of the node",
        ),
    ],
)
def test_status_write_causes(status: dict[str, Any], causes: list[str]) -> None:
    old = {"metadata": {}, "spec": {}}
    assert validator_causes(validate_pod_status_update, {**old, "status": status}, old) == causes
