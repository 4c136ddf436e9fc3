"""DeviceClasses. Source: pkg/apis/resource/validation of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.kinds.resource.common import validate_list
from kubeloop.devcluster.kinds.resource.resource_claim import (
    MAX_CONFIG,
    MAX_SELECTORS,
    validate_opaque_configuration,
    validate_selector,
)
from kubeloop.devcluster.printers.columns import AGE, row
from kubeloop.devcluster.registry.disabled_fields import drop_fields, spec_part
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.containers import is_extended
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import long_name


def validate_device_class(errors: ErrorList, obj: JSON) -> None:
    spec = obj["spec"]
    validate_list(errors, "spec.selectors", spec.get("selectors"), MAX_SELECTORS, validate_selector)
    validate_list(errors, "spec.config", spec.get("config"), MAX_CONFIG, validate_opaque_configuration)
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended(name):
        errors.invalid("spec.extendedResourceName", name, "must be a valid extended resource name")


STRATEGY = Strategy(
    gated_fields=(("DRAExtendedResource", drop_fields((spec_part, ("extendedResourceName",)))),),
    name_check=long_name,
    validate=validate_device_class,
    validate_update=update_as_create(validate_device_class),
    update_steps="wus",
    cells=row(AGE),
)
