"""Validation of VolumeAttributesClasses. Source: pkg/apis/storage/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.storage.storage_class import parameters, provisioner
from kubeloop.kube.json_object import JSON


def attributes_class_create(errors: ErrorList, obj: JSON) -> None:
    provisioner(errors, "driverName", obj.get("driverName", ""))
    parameters(errors, obj.get("parameters"))
    if not obj.get("parameters"):
        errors.required("parameters", "must contain at least one key/value pair")


def attributes_class_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    for name in ("driverName", "parameters"):
        if obj.get(name) != old.get(name):
            errors.forbidden(name, f"updates to {name} are forbidden.")
    attributes_class_create(errors, obj)
