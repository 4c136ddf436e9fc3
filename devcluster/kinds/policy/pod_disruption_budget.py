"""PodDisruptionBudgets. Source: pkg/apis/policy/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.printers.columns import AGE, number_of, row, text_of
from kubeloop.devcluster.validation.common.error_list import (
    ErrorList,
    validate_at_most_100_percent,
    validate_label_selector,
    validate_positive_int_or_percent,
)
from kubeloop.devcluster.validation.common.status_conditions import validate_conditions
from kubeloop.kube.json_object import JSON


def validate_pod_disruption_budget(errors: ErrorList, obj: JSON) -> None:
    spec = obj["spec"]
    if "minAvailable" in spec and "maxUnavailable" in spec:
        detail = "minAvailable and maxUnavailable cannot be both set"
        errors.invalid("spec", spec, detail, "policy/v1.PodDisruptionBudgetSpec")
    for name in ("minAvailable", "maxUnavailable"):
        validate_positive_int_or_percent(errors, f"spec.{name}", spec.get(name))
        validate_at_most_100_percent(errors, f"spec.{name}", spec.get(name))
    validate_label_selector(errors, "spec.selector", spec.get("selector"))
    policies = ("AlwaysAllow", "IfHealthyBudget")
    errors.one_of("spec.unhealthyPodEvictionPolicy", spec.get("unhealthyPodEvictionPolicy"), policies)


def validate_pod_disruption_budget_status_update(errors: ErrorList, obj: JSON, _old: JSON) -> None:
    status = obj.get("status", {})
    validate_conditions(errors, "status.conditions", status.get("conditions", ()))
    names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    errors.not_negative_fields("status", status, *names)


STRATEGY = Strategy(
    validate=validate_pod_disruption_budget,
    validate_update=update_as_create(validate_pod_disruption_budget),
    validate_subresources={"status": validate_pod_disruption_budget_status_update},
    strategy_metadata=False,
    update_steps="s",
    subresource_steps="s",
    cells=row(
        text_of("spec.minAvailable", "N/A"),
        text_of("spec.maxUnavailable", "N/A"),
        number_of("status.disruptionsAllowed"),
        AGE,
    ),
)
