"""Rules of a pod failure policy."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.job.policies.pod_failure_policy import FailureMatch, match_failure
from kubeloop.kube.objects.api_types import PodFailurePolicy, convert
from support.objects.job_objects import new_pod


def policy(*rules: dict[str, Any]) -> PodFailurePolicy:
    return convert(PodFailurePolicy, {"rules": rules})


def ended(name: str, exit_code: int) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": exit_code}}}


def codes(action: str, operator: str, *values: int, container: str | None = None) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": operator, "values": values, "containerName": container}}


def test_no_policy_counts_each_failure():
    assert match_failure(None, new_pod("p", "Failed")) == FailureMatch()
    assert FailureMatch().counts


@pytest.mark.parametrize(
    ("rule", "action"),
    [
        pytest.param(codes("Ignore", "In", 3, 4), "Ignore", id="exit code in the list"),
        pytest.param(codes("Ignore", "In", 5), "", id="exit code not in the list"),
        pytest.param(codes("Count", "NotIn", 5), "Count", id="not in, not in the list"),
        pytest.param(codes("Count", "NotIn", 4, container="main"), "", id="not in, in the list"),
        pytest.param(codes("FailIndex", "In", 4, container="main"), "FailIndex", id="container"),
        pytest.param(codes("FailIndex", "In", 4, container="init"), "", id="another container"),
        pytest.param(codes("Ignore", "NotIn", 4, 7), "", id="success and running containers do not match"),
    ],
)
def test_exit_code_rules(rule, action):
    pod = new_pod(
        "p",
        "Failed",
        containerStatuses=[ended("main", 4), ended("ok", 0), {"name": "runs", "state": {"running": {}}}],
        initContainerStatuses=[ended("init", 7)],
    )
    assert match_failure(policy(rule), pod).action == action


def test_first_matching_rule_decides():
    pod = new_pod("p", "Failed", containerStatuses=[ended("main", 4)])
    rules = policy(codes("Ignore", "In", 5), codes("Ignore", "In", 4), codes("FailJob", "In", 4))
    assert match_failure(rules, pod) == FailureMatch("Ignore")
    assert not match_failure(rules, pod).counts


def test_messages_name_what_has_matched():
    pod = new_pod(
        "p",
        "Failed",
        containerStatuses=[ended("main", 4)],
        conditions=[{"type": "DisruptionTarget", "status": "True"}],
    )
    rule = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert (
        match_failure(policy(codes("FailJob", "In", 4)), pod).job_failure
        == "Container main for pod ns/p failed with exit code 4 matching FailJob rule at index 0"
    )
    assert (
        match_failure(policy(codes("Count", "In", 9), rule), pod).job_failure
        == "Pod ns/p has condition DisruptionTarget matching FailJob rule at index 1"
    )


def test_condition_rule_compares_the_status():
    pod = new_pod("p", "Failed", conditions=[{"type": "DisruptionTarget", "status": "False"}])
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert match_failure(policy(rule), pod) == FailureMatch()


def test_containers_without_a_failure_are_skipped():
    statuses = [ended("ok", 0), {"name": "runs", "state": {"running": {}}}, ended("main", 4)]
    pod = new_pod("p", "Failed", containerStatuses=statuses)
    assert match_failure(policy(codes("Ignore", "In", 4)), pod).action == "Ignore"
    assert match_failure(policy(codes("Ignore", "NotIn", 5)), pod).action == "Ignore"
