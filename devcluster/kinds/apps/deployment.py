"""Deployments. Source: pkg/apis/apps/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from functools import partial

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.printers.columns import AGE, containers_of, number_of, ready_replicas, row, selector_of
from kubeloop.devcluster.registry.disabled_fields import drop_fields, itself
from kubeloop.devcluster.serializer.defaulting import default_template
from kubeloop.devcluster.validation.common.error_list import (
    ErrorList,
    is_zero_int_or_percent,
    validate_at_most_100_percent,
    validate_positive_int_or_percent,
)
from kubeloop.devcluster.validation.common.workload_status import validate_collision_count, validate_replica_counts
from kubeloop.devcluster.validation.pod.workload_template import (
    LABEL_SELECTOR,
    validate_workload_selector,
    validate_workload_template,
)
from kubeloop.devcluster.validation.warnings.pod_warnings import workload_warnings
from kubeloop.kube.json_object import JSON


def validate_deployment(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    errors.not_negative("spec.replicas", spec.get("replicas"))
    validate_workload_selector(
        errors, "spec.selector", spec.get("selector"), "empty selector is invalid for deployment"
    )
    validate_workload_template(errors, "spec", spec, "ReplicaSet", old)
    _validate_deployment_strategy(errors, "spec.strategy", spec.get("strategy", {}))
    min_ready_seconds = spec.get("minReadySeconds", 0)
    errors.not_negative("spec.minReadySeconds", min_ready_seconds)
    errors.not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        errors.not_negative("spec.progressDeadlineSeconds", deadline)
        if deadline <= min_ready_seconds:
            errors.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _validate_deployment_strategy(errors: ErrorList, path: str, strategy: JSON) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            errors.forbidden(f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif kind == "RollingUpdate":
        if rolling is None:
            errors.required(f"{path}.rollingUpdate", "this should be defaulted and never be nil")
            return
        unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        validate_positive_int_or_percent(errors, f"{path}.rollingUpdate.maxUnavailable", unavailable)
        validate_positive_int_or_percent(errors, f"{path}.rollingUpdate.maxSurge", surge)
        if is_zero_int_or_percent(unavailable) and is_zero_int_or_percent(surge):
            errors.invalid(f"{path}.rollingUpdate.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
        validate_at_most_100_percent(errors, f"{path}.rollingUpdate.maxUnavailable", unavailable)
    else:
        errors.not_supported(path, strategy, ("Recreate", "RollingUpdate"), "apps/v1.DeploymentStrategy")


def validate_deployment_status_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    status = obj.get("status", {})
    for name in ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
                 "unavailableReplicas", "terminatingReplicas", "collisionCount"):  # fmt: skip
        errors.not_negative(f"status.{name}", status.get(name))
    validate_replica_counts(errors, status, ("updatedReplicas", "readyReplicas", "availableReplicas"))
    validate_collision_count(errors, obj, old)


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    default_template(spec)
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling_update = strategy.setdefault("rollingUpdate", {})
        rolling_update.setdefault("maxUnavailable", "25%")
        rolling_update.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


STRATEGY = Strategy(
    default=_default,
    unowned={"status": {"f:metadata": {"f:labels": {}}}},
    template_path=("spec", "template"),
    gated_status_fields=(("DeploymentReplicaSetTerminatingReplicas", drop_fields((itself, ("terminatingReplicas",)))),),
    status_metadata=("annotations", "finalizers", "ownerReferences"),
    validate=validate_deployment,
    validate_update=update_as_create(validate_deployment, ("spec.selector", LABEL_SELECTOR), with_stored=True),
    validate_subresources={"status": validate_deployment_status_update},
    warnings=partial(workload_warnings, names_pods=True),
    cells=row(
        ready_replicas,
        number_of("status.updatedReplicas"),
        number_of("status.availableReplicas"),
        AGE,
        *containers_of("spec.template"),
        selector_of("spec.selector", unset=""),
    ),
)
