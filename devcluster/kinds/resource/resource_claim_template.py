"""ResourceClaimTemplates. Source: pkg/apis/resource/validation of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.admission import device_admin_access
from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.kinds.resource.resource_claim import (
    default_device_requests,
    gated_claim_fields,
    validate_devices,
)
from kubeloop.devcluster.printers.columns import AGE, row
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import validate_template_metadata
from kubeloop.kube.json_object import JSON


def validate_resource_claim_template(errors: ErrorList, obj: JSON) -> None:
    spec = obj["spec"]
    validate_template_metadata(errors, "spec.metadata", spec.get("metadata") or {})
    validate_devices(errors, "spec.spec.devices", (spec.get("spec") or {}).get("devices") or {})


def _default(obj: JSON) -> None:
    default_device_requests(obj.get("spec") or {})


def _check_access(
    chain: AdmissionChain, _context: RequestContext, template: JSON, old: JSON | None, causes: list[JSON]
) -> list[JSON]:
    if old is not None:
        return causes
    spec = (template.get("spec") or {}).get("spec") or {}
    return [*device_admin_access.check_requests(chain.store, template, spec), *causes]


STRATEGY = Strategy(
    default=_default,
    gated_fields=gated_claim_fields("spec", "spec"),
    validate=validate_resource_claim_template,
    validate_update=update_as_create(
        validate_resource_claim_template, ("spec", "resource/v1.ResourceClaimTemplateSpec")
    ),
    update_steps="wsu",
    check_access=_check_access,
    cells=row(AGE),
)
