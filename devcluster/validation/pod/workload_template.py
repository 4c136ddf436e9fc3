"""Checks of selectors and pod templates that Deployments, ReplicaSets, StatefulSets and DaemonSets share."""

from __future__ import annotations

from kubeloop.devcluster.validation.common.error_list import (
    ErrorList,
    is_valid_selector,
    selector_matches,
    validate_label_selector,
)
from kubeloop.devcluster.validation.pod.pod_spec import template_before, validate_pod_template_spec
from kubeloop.kube.json_object import JSON

SELECTOR_MISMATCH = "`selector` does not match template `labels`"
LABEL_SELECTOR = "meta/v1.LabelSelector"


def validate_workload_selector(errors: ErrorList, path: str, selector: JSON | None, empty: str) -> None:
    if selector is None:
        errors.required(path)
        return
    validate_label_selector(errors, path, selector)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.invalid(path, selector, empty, LABEL_SELECTOR)


def validate_workload_template(errors: ErrorList, path: str, spec: JSON, owner: str, old: JSON | None = None) -> None:
    selector, template = spec.get("selector"), spec.get("template", {})
    if not is_valid_selector(selector):
        errors.invalid(f"{path}.selector", selector, "invalid label selector", LABEL_SELECTOR)
        return
    template_labels = template.get("metadata", {}).get("labels")
    if selector != {} and not selector_matches(selector, template_labels or {}):
        errors.invalid(f"{path}.template.metadata.labels", template_labels, SELECTOR_MISMATCH)
    validate_pod_template_spec(errors, f"{path}.template", template, template_before(old))
    validate_restart_policy_always(errors, f"{path}.template.spec", template.get("spec", {}), owner)


def validate_restart_policy_always(errors: ErrorList, path: str, spec: JSON, owner: str) -> None:
    if spec.get("restartPolicy") != "Always":
        errors.not_supported(f"{path}.restartPolicy", spec.get("restartPolicy", ""), ("Always",))
    if "activeDeadlineSeconds" in spec:
        errors.forbidden(f"{path}.activeDeadlineSeconds", f"activeDeadlineSeconds in {owner} is not Supported")
