"""Validation of ReplicationControllers. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.validation.apps.workload_template import SELECTOR_MISMATCH, restart_policy_always
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.pod_spec import pod_template_spec, template_before
from kubeloop.kube.json_object import JSON


def replication_controller_create(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    selector, template = spec.get("selector", {}), spec.get("template")
    errors.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    if not selector:
        errors.required("spec.selector")
    errors.not_negative("spec.replicas", spec.get("replicas"))
    if template is None:
        errors.required("spec.template")
        return
    found = template.get("metadata", {}).get("labels")
    if selector and any((found or {}).get(key) != value for key, value in selector.items()):
        errors.invalid("spec.template.metadata.labels", found, SELECTOR_MISMATCH)
    pod_template_spec(errors, "spec.template", template, template_before(old))
    restart_policy_always(errors, "spec.template.spec", template.get("spec", {}), "ReplicationController")


def replication_controller_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        replication_controller_create(errors, obj, old)
