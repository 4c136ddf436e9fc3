"""Validation of Deployments. Source: pkg/apis/apps/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.validation.apps.workload_status import collision_count, replica_counts
from kubeloop.devcluster.validation.apps.workload_template import LABEL_SELECTOR, workload_selector, workload_template
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.field_checks import (
    is_zero_int_or_percent,
    not_more_than_100_percent,
    positive_int_or_percent,
)
from kubeloop.kube.json_object import JSON


def deployment_create(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    errors.not_negative("spec.replicas", spec.get("replicas"))
    workload_selector(errors, "spec.selector", spec.get("selector"), "empty selector is invalid for deployment")
    workload_template(errors, "spec", spec, "ReplicaSet", old)
    _deployment_strategy(errors, "spec.strategy", spec.get("strategy", {}))
    least = spec.get("minReadySeconds", 0)
    errors.not_negative("spec.minReadySeconds", least)
    errors.not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        errors.not_negative("spec.progressDeadlineSeconds", deadline)
        if deadline <= least:
            errors.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _deployment_strategy(errors: ErrorList, path: str, strategy: JSON) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            errors.forbidden(f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif kind == "RollingUpdate":
        if rolling is None:
            errors.required(f"{path}.rollingUpdate", "this should be defaulted and never be nil")
            return
        unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        positive_int_or_percent(errors, f"{path}.rollingUpdate.maxUnavailable", unavailable)
        positive_int_or_percent(errors, f"{path}.rollingUpdate.maxSurge", surge)
        if is_zero_int_or_percent(unavailable) and is_zero_int_or_percent(surge):
            errors.invalid(f"{path}.rollingUpdate.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
        not_more_than_100_percent(errors, f"{path}.rollingUpdate.maxUnavailable", unavailable)
    else:
        errors.not_supported(path, strategy, ("Recreate", "RollingUpdate"), "apps/v1.DeploymentStrategy")


def deployment_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        deployment_create(errors, obj, old)
        errors.immutable("spec.selector", obj["spec"].get("selector"), old["spec"].get("selector"), LABEL_SELECTOR)


def deployment_status(errors: ErrorList, obj: JSON, old: JSON) -> None:
    status = obj.get("status", {})
    for name in ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
                 "unavailableReplicas", "terminatingReplicas", "collisionCount"):  # fmt: skip
        errors.not_negative(f"status.{name}", status.get(name))
    replica_counts(errors, status, ("updatedReplicas", "readyReplicas", "availableReplicas"))
    collision_count(errors, obj, old)
