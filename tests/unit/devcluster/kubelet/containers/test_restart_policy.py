"""Restarts of exited containers by restart policy and restart rules."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kubelet.containers.restart_policy import restarts_after


@pytest.mark.parametrize(
    ("policy", "exit_code", "expected"),
    [("Always", 0, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_policy_of_pod_or_container(policy, exit_code, expected):
    assert restarts_after({}, exit_code, policy) is expected
    opposite = "Never" if expected else "Always"
    assert restarts_after({"restartPolicy": policy}, exit_code, opposite) is expected


def test_init_container_restarts_only_after_failure():
    assert not restarts_after({}, 0, "Always", is_init=True)
    assert restarts_after({}, 1, "Always", is_init=True)
    assert not restarts_after({}, 1, "Never", is_init=True)


@pytest.mark.parametrize(
    ("operator", "exit_code", "expected"),
    [("In", 42, True), ("In", 1, False), ("NotIn", 42, False), ("NotIn", 1, True)],
)
def test_restart_rule_overrides_policy(operator, exit_code, expected):
    rule = {"action": "Restart", "exitCodes": {"operator": operator, "values": [42]}}
    container = {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    assert restarts_after(container, exit_code, "Never") is expected
