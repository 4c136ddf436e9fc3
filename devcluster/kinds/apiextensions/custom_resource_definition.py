"""CustomResourceDefinitions. Source: apiextensions-apiserver pkg/registry/customresourcedefinition."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.apiextensions.definition_validation import (
    definition_warnings,
    validate_definition_create,
    validate_definition_status,
    validate_definition_update,
)
from kubeloop.devcluster.kinds.admissionregistration.validating_webhook_configuration import default_service_port
from kubeloop.kube.json_object import JSON


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names.setdefault("listKind", f"{names['kind']}List")
        names.setdefault("singular", names["kind"].lower())
    conversion = spec.setdefault("conversion", {})
    conversion.setdefault("strategy", "None")
    default_service_port(((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service"))


STRATEGY = Strategy(
    default=_default,
    validate=validate_definition_create,
    validate_update=validate_definition_update,
    validate_status=validate_definition_status,
    core_finalizers=False,
    warnings=definition_warnings,
    status_warnings=definition_warnings,
)
