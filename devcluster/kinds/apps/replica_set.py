"""ReplicaSets. Source: pkg/apis/apps/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from functools import partial

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.printers.columns import AGE, containers_of, number_of, row, selector_of
from kubeloop.devcluster.registry.disabled_fields import drop_fields, itself
from kubeloop.devcluster.serializer.defaulting import default_template
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.workload_status import validate_replica_counts
from kubeloop.devcluster.validation.pod.workload_template import (
    LABEL_SELECTOR,
    validate_workload_selector,
    validate_workload_template,
)
from kubeloop.devcluster.validation.warnings.pod_warnings import workload_warnings
from kubeloop.kube.json_object import JSON


def validate_replica_set(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    errors.not_negative("spec.replicas", spec.get("replicas"))
    errors.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    validate_workload_selector(
        errors, "spec.selector", spec.get("selector"), "empty selector is invalid for deployment"
    )
    validate_workload_template(errors, "spec", spec, "ReplicaSet", old)


def validate_replica_set_status_update(errors: ErrorList, obj: JSON, _old: JSON) -> None:
    status = obj.get("status", {})
    for name in ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas",
                 "observedGeneration"):  # fmt: skip
        errors.not_negative(f"status.{name}", status.get(name))
    validate_replica_counts(errors, status, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"))


def _default(obj: JSON) -> None:
    default_template(obj["spec"])
    obj["spec"].setdefault("replicas", 1)


REPLICA_COLUMNS = (
    number_of("spec.replicas"),
    number_of("status.replicas"),
    number_of("status.readyReplicas"),
    AGE,
    *containers_of("spec.template"),
)


STRATEGY = Strategy(
    default=_default,
    template_path=("spec", "template"),
    gated_status_fields=(("DeploymentReplicaSetTerminatingReplicas", drop_fields((itself, ("terminatingReplicas",)))),),
    validate=validate_replica_set,
    validate_update=update_as_create(validate_replica_set, ("spec.selector", LABEL_SELECTOR), with_stored=True),
    validate_subresources={"status": validate_replica_set_status_update},
    warnings=partial(workload_warnings, names_pods=True),
    cells=row(*REPLICA_COLUMNS, selector_of("spec.selector")),
)
