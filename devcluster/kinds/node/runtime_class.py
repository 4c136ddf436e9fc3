"""RuntimeClasses. Source: pkg/apis/node/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_labels
from kubeloop.devcluster.validation.pod.containers import validate_resource_requirements
from kubeloop.devcluster.validation.pod.scheduling import validate_tolerations
from kubeloop.devcluster.validation.warnings.pod_warnings import DEPRECATED_NODE_LABELS
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_label


def validate_runtime_class(errors: ErrorList, obj: JSON) -> None:
    handler, scheduling = obj.get("handler", ""), obj.get("scheduling") or {}
    errors.check_required("handler", handler, dns_label)
    if obj.get("overhead") is not None:
        validate_resource_requirements(errors, "overhead", {"limits": obj["overhead"].get("podFixed", {})})
    validate_labels(errors, "scheduling.nodeSelector", scheduling.get("nodeSelector"))
    tolerations = scheduling.get("tolerations", ())
    validate_tolerations(errors, "scheduling.tolerations", tolerations)
    seen = set()
    for i, toleration in enumerate(tolerations):
        key = tuple(toleration.get(name, "") for name in ("key", "operator", "value", "effect"))
        if key in seen:
            errors.duplicate(f"scheduling.tolerations[{i}]", toleration, type_name="core/v1.Toleration")
        seen.add(key)


def _warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    for key in sorted((obj.get("scheduling") or {}).get("nodeSelector", ())):
        if key in DEPRECATED_NODE_LABELS:
            yield f"scheduling.nodeSelector: {DEPRECATED_NODE_LABELS[key]}"


STRATEGY = Strategy(
    validate=validate_runtime_class,
    validate_update=update_as_create(validate_runtime_class, "handler", unchanged=True),
    core_finalizers=False,
    update_steps="wsu",
    warnings=_warnings,
    cells=row(text_of("handler"), AGE),
)
