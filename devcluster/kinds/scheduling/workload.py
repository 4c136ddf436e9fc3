"""Workloads. Source: pkg/apis/scheduling/v1alpha2 and pkg/apis/scheduling/validation of Kubernetes v1.36."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.api.strategy import Drop, Strategy
from kubeloop.devcluster.kinds.scheduling.pod_group import (
    GATES_OF_GROUP_FIELDS,
    validate_group,
    validate_immutable,
    validate_name,
    validate_size,
    validate_unique_names,
)
from kubeloop.devcluster.printers.columns import AGE, row
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import validate_path_segment
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_label, dns_subdomain

_MAX_TEMPLATES = 8


def validate_workload(errors: ErrorList, obj: JSON) -> None:
    spec = obj["spec"]
    if (reference := spec.get("controllerRef")) is not None:
        path = "spec.controllerRef"
        errors.check(f"{path}.apiGroup", reference.get("apiGroup") or None, dns_subdomain)
        for name in ("kind", "name"):
            validate_path_segment(errors, f"{path}.{name}", reference.get(name, ""))
    path, templates = "spec.podGroupTemplates", spec.get("podGroupTemplates") or []
    if validate_size(errors, path, templates, _MAX_TEMPLATES, required=True):
        validate_unique_names(errors, path, templates, "scheduling/v1alpha2.PodGroupTemplate")
        for i, template in enumerate(templates):
            validate_name(errors, f"{path}[{i}].name", template.get("name"), dns_label)
            validate_group(errors, f"{path}[{i}]", template)


def validate_workload_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    spec, before = obj["spec"], old["spec"]
    validate_immutable(errors, spec, before, "controllerRef")
    if validate_immutable(errors, spec, before, "podGroupTemplates"):
        templates = spec.get("podGroupTemplates") or []
        validate_size(errors, "spec.podGroupTemplates", templates, _MAX_TEMPLATES, required=True)


def _drop_from_templates(name: str) -> Drop:
    """Return a function that drops a field from the templates of a Workload; they are compared by index."""

    def drop(new: JSON, old: JSON) -> None:
        templates, stored = ((obj.get("spec") or {}).get("podGroupTemplates") or () for obj in (new, old))
        for i, template in enumerate(templates):
            if i >= len(stored) or stored[i].get(name) in _UNUSED:
                if name == "schedulingConstraints":
                    template[name] = None  # JSON has the field even if it is unset
                else:
                    template.pop(name, None)

    return drop


_UNUSED: tuple[Any, ...] = (None, [])


STRATEGY = Strategy(
    gated_fields=tuple((gate, _drop_from_templates(name)) for name, gate in GATES_OF_GROUP_FIELDS),
    validate=validate_workload,
    validate_update=validate_workload_update,
    cells=row(AGE),
)
