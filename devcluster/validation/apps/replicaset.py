"""Validation of ReplicaSets. Source: pkg/apis/apps/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.validation.apps.workload_status import replica_counts
from kubeloop.devcluster.validation.apps.workload_template import LABEL_SELECTOR, workload_selector, workload_template
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON


def replica_set_create(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    errors.not_negative("spec.replicas", spec.get("replicas"))
    errors.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    workload_selector(errors, "spec.selector", spec.get("selector"), "empty selector is invalid for deployment")
    workload_template(errors, "spec", spec, "ReplicaSet", old)


def replica_set_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        replica_set_create(errors, obj, old)
        errors.immutable("spec.selector", obj["spec"].get("selector"), old["spec"].get("selector"), LABEL_SELECTOR)


def replica_set_status(errors: ErrorList, obj: JSON, old: JSON) -> None:
    del old
    status = obj.get("status", {})
    for name in ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas",
                 "observedGeneration"):  # fmt: skip
        errors.not_negative(f"status.{name}", status.get(name))
    replica_counts(errors, status, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"))
