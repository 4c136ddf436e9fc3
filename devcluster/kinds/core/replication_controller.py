"""ReplicationControllers. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.selectable_fields import METADATA, field_getter
from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.kinds.apps.replica_set import REPLICA_COLUMNS, validate_replica_set_status_update
from kubeloop.devcluster.printers.columns import labels_of, row
from kubeloop.devcluster.serializer.defaulting import default_labels_of_template, default_template
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.pod_spec import template_before, validate_pod_template_spec
from kubeloop.devcluster.validation.pod.workload_template import SELECTOR_MISMATCH, validate_restart_policy_always
from kubeloop.devcluster.validation.warnings.pod_warnings import has_same_spec, template_warnings, workload_warnings
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import long_name


def validate_replication_controller(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    selector, template = spec.get("selector", {}), spec.get("template")
    errors.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    errors.require("spec.selector", selector)
    errors.not_negative("spec.replicas", spec.get("replicas"))
    if template is None:
        errors.required("spec.template")
        return
    template_labels = template.get("metadata", {}).get("labels")
    if selector and any((template_labels or {}).get(key) != value for key, value in selector.items()):
        errors.invalid("spec.template.metadata.labels", template_labels, SELECTOR_MISMATCH)
    validate_pod_template_spec(errors, "spec.template", template, template_before(old))
    validate_restart_policy_always(errors, "spec.template.spec", template.get("spec", {}), "ReplicationController")


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    default_template(spec)
    labels = spec.get("template", {}).get("metadata", {}).get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        if not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)
    spec.setdefault("replicas", 1)


def _warnings(controller: JSON, old: JSON | None) -> list[str]:
    """Return the warnings about a ReplicationController; on an update, v1.36 warns about the stored template."""
    if old is None:
        return workload_warnings(controller, None, names_pods=True)
    return [] if has_same_spec(controller, old) else template_warnings(old.get("spec", {}), "spec")


STRATEGY = Strategy(
    default=_default,
    default_on_read=default_labels_of_template,
    template_path=("spec", "template"),
    name_check=long_name,
    validate=validate_replication_controller,
    validate_update=update_as_create(validate_replication_controller, with_stored=True),
    validate_subresources={"status": validate_replica_set_status_update},
    warnings=_warnings,
    cells=row(*REPLICA_COLUMNS, labels_of("spec.selector")),
    selectable_fields={**METADATA, "status.replicas": field_getter("status.replicas", "0")},
)
