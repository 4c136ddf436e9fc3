"""PodTemplates. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.printers.columns import containers_of, labels_of, row
from kubeloop.devcluster.serializer.defaulting import default_template
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.pod_spec import validate_pod_template_spec
from kubeloop.devcluster.validation.warnings.pod_warnings import pod_warnings
from kubeloop.kube.json_object import JSON


def validate_pod_template(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    validate_pod_template_spec(
        errors, "template", obj.get("template", {}), None if old is None else old.get("template", {})
    )


def _warnings(obj: JSON, old: JSON | None) -> list[str]:
    template = obj.get("template", {})
    if old is not None and template == old.get("template", {}):
        return []
    return pod_warnings(template.get("metadata", {}), template.get("spec", {}), "template.metadata", "template.spec")


STRATEGY = Strategy(
    default=default_template,
    template_path=("template",),
    validate=validate_pod_template,
    validate_update=update_as_create(validate_pod_template, with_stored=True),
    warnings=_warnings,
    cells=row(*containers_of("template"), labels_of("template.metadata.labels")),
)
