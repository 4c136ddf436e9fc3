"""Validation of PodDisruptionBudgets. Source: pkg/apis/policy/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.field_checks import (
    label_selector,
    not_more_than_100_percent,
    positive_int_or_percent,
)
from kubeloop.devcluster.validation.common.status_conditions import conditions
from kubeloop.kube.json_object import JSON


def disruption_budget_create(errors: ErrorList, obj: JSON) -> None:
    spec = obj["spec"]
    if "minAvailable" in spec and "maxUnavailable" in spec:
        wrong = "minAvailable and maxUnavailable cannot be both set"
        errors.invalid("spec", spec, wrong, "policy/v1.PodDisruptionBudgetSpec")
    for name in ("minAvailable", "maxUnavailable"):
        positive_int_or_percent(errors, f"spec.{name}", spec.get(name))
        not_more_than_100_percent(errors, f"spec.{name}", spec.get(name))
    label_selector(errors, "spec.selector", spec.get("selector"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("IfHealthyBudget", "AlwaysAllow"):
        errors.not_supported("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget"))


def disruption_budget_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        disruption_budget_create(errors, obj)


def disruption_budget_status(errors: ErrorList, obj: JSON, old: JSON) -> None:
    del old
    status = obj.get("status", {})
    conditions(errors, "status.conditions", status.get("conditions", ()))
    for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        errors.not_negative(f"status.{name}", status.get(name))
