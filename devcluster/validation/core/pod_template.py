"""Validation of PodTemplates. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.pod_spec import pod_template_spec
from kubeloop.kube.json_object import JSON


def pod_template_create(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    pod_template_spec(errors, "template", obj.get("template", {}), None if old is None else old.get("template", {}))


def pod_template_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    if obj.get("template") != old.get("template"):
        pod_template_create(errors, obj, old)
