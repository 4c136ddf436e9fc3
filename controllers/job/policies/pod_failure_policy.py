"""Pod failure policy: the rule that a failed Pod matches.

Pure functions. Source: v1.36 pkg/controller/job/pod_failure_policy.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kubeloop.kube.objects.api_types import (
    Condition,
    ContainerStatus,
    JSONValue,
    Pod,
    PodFailurePolicy,
    PodFailurePolicyOnExitCodes,
    PodFailurePolicyRule,
)


class FailureMatch(NamedTuple):
    """action: of the first rule that matches; "" without one. job_failure: message of an action FailJob."""

    action: str = ""
    job_failure: str | None = None

    @property
    def counts(self) -> bool:
        """True if the failure counts towards backoffLimit and backoffLimitPerIndex."""
        return self.action != "Ignore"


def match_failure(policy: PodFailurePolicy | None, pod: Pod) -> FailureMatch:
    """Return the match of a failed Pod."""
    for index, rule in enumerate(policy.rules if policy is not None else ()):
        description = _match(rule, pod)
        if description is None:
            continue
        if rule.action == "FailJob":
            return FailureMatch(rule.action, f"{description} matching FailJob rule at index {index}")
        if rule.action in ("Ignore", "FailIndex", "Count"):
            return FailureMatch(rule.action)
    return FailureMatch()


def _match(rule: PodFailurePolicyRule, pod: Pod) -> str | None:
    """Return what of the Pod the rule matches; None if it does not match."""
    namespace, name = pod.metadata.namespace, pod.metadata.name
    if rule.on_exit_codes is not None:
        requirement = rule.on_exit_codes
        status = _matching_container(pod.status.container_statuses, requirement) or _matching_container(
            pod.status.init_container_statuses, requirement
        )
        if status is None:
            return None
        return f"Container {status.name} for pod {namespace}/{name} failed with exit code {_exit_code(status)}"
    condition = _matching_condition(rule, pod.status.conditions)
    return None if condition is None else f"Pod {namespace}/{name} has condition {condition.type}"


def _matching_condition(rule: PodFailurePolicyRule, conditions: Iterable[Condition]) -> Condition | None:
    for condition in conditions:
        for pattern in rule.on_pod_conditions:
            if condition.type == pattern.type and condition.status == pattern.status:
                return condition
    return None


def _matching_container(
    statuses: Iterable[ContainerStatus], requirement: PodFailurePolicyOnExitCodes
) -> ContainerStatus | None:
    for status in statuses:
        if requirement.container_name not in (None, status.name):
            continue
        exit_code = _exit_code(status)
        if not exit_code:
            continue  # still running, or successful
        listed = exit_code in requirement.values
        if (requirement.operator == "In" and listed) or (requirement.operator == "NotIn" and not listed):
            return status
    return None


def _exit_code(status: ContainerStatus) -> int | None:
    terminated: JSONValue = (status.state or {}).get("terminated")
    return terminated.get("exitCode", 0) if terminated else None
