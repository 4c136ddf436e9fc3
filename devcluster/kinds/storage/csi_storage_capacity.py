"""CSIStorageCapacities. Source: pkg/apis/storage/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_label_selector
from kubeloop.devcluster.validation.warnings.pod_warnings import DEPRECATED_NODE_LABELS
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_subdomain
from kubeloop.kube.values.quantities import parse_quantity


def validate_csi_storage_capacity(errors: ErrorList, obj: JSON) -> None:
    validate_label_selector(errors, "nodeTopology", obj.get("nodeTopology"))
    name = obj.get("storageClassName", "")
    errors.check("storageClassName", name, dns_subdomain)
    amount = obj.get("capacity")
    if amount is not None and parse_quantity(amount).nano() < 0:
        errors.invalid("capacity", amount, "must be greater than or equal to 0")


def _warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    topology = obj.get("nodeTopology") or {}
    for i, match_expression in enumerate(topology.get("matchExpressions", ())):
        key = match_expression.get("key", "")
        if key in DEPRECATED_NODE_LABELS:
            yield f"nodeTopology.matchExpressions[{i}].key: {key} is {DEPRECATED_NODE_LABELS[key]}"
    for key in sorted(topology.get("matchLabels", ())):
        if key in DEPRECATED_NODE_LABELS:
            yield f"nodeTopology.matchLabels.{key}: {DEPRECATED_NODE_LABELS[key]}"


STRATEGY = Strategy(
    validate=validate_csi_storage_capacity,
    validate_update=update_as_create(
        validate_csi_storage_capacity, ("nodeTopology", "meta/v1.LabelSelector"), "storageClassName", unchanged=True
    ),
    update_steps="wsu",
    warnings=_warnings,
)
