"""VolumeAttributesClasses. Source: pkg/apis/storage/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.admission.chain import AdmissionChain, add_finalizer
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.storage.storage_class import validate_parameters, validate_provisioner
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.printers.formatting import NONE
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON


def validate_volume_attributes_class(errors: ErrorList, obj: JSON) -> None:
    validate_provisioner(errors, "driverName", obj.get("driverName", ""))
    validate_parameters(errors, obj.get("parameters"))
    errors.require("parameters", obj.get("parameters"), "must contain at least one key/value pair")


def validate_volume_attributes_class_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    for name in ("driverName", "parameters"):
        if obj.get(name) != old.get(name):
            errors.forbidden(name, f"updates to {name} are forbidden.")
    validate_volume_attributes_class(errors, obj)


def _admit_create(chain: AdmissionChain, _context: RequestContext, attributes_class: JSON) -> None:
    if "StorageObjectInUseProtection" in chain.enabled:
        add_finalizer(attributes_class, "kubernetes.io/vac-protection")


STRATEGY = Strategy(
    validate=validate_volume_attributes_class,
    validate_update=validate_volume_attributes_class_update,
    update_steps="usw",
    admit_create=_admit_create,
    cells=row(text_of("driverName", NONE), AGE),
)
