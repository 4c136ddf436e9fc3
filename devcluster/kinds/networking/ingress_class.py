"""IngressClasses. Source: pkg/apis/networking/validation of Kubernetes v1.36."""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.networking.ingress import validate_typed_reference
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.printers.formatting import NONE, spec_of
from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_domain_prefixed_path
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_label

_CONTROLLER_LENGTH = 250

_SCOPES = ("Cluster", "Namespace")


def validate_ingress_class(errors: ErrorList, obj: JSON) -> None:
    spec = obj.get("spec", {})
    controller, parameters = spec.get("controller", ""), spec.get("parameters")
    errors.at_most_bytes("spec.controller", controller, _CONTROLLER_LENGTH)
    validate_domain_prefixed_path(errors, "spec.controller", controller)
    if parameters is not None:
        _validate_class_parameters(errors, "spec.parameters", parameters)


def _validate_class_parameters(errors: ErrorList, path: str, parameters: JSON) -> None:
    validate_typed_reference(errors, path, parameters)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        errors.required(f"{path}.scope")
    elif scope not in _SCOPES:
        errors.not_supported(f"{path}.scope", scope, _SCOPES)
    elif scope == "Namespace":
        if namespace is None:
            errors.required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
        else:
            errors.check(f"{path}.namespace", namespace, dns_label)
    elif namespace is not None:
        errors.forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")


def validate_ingress_class_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    new, before = obj.get("spec", {}), old.get("spec", {})
    errors.immutable("spec.controller", new.get("controller", ""), before.get("controller", ""))
    validate_ingress_class(errors, obj)


def _default(obj: JSON) -> None:
    parameters = obj.get("spec", {}).get("parameters")
    if parameters is not None and parameters.get("scope") is None:
        parameters["scope"] = "Cluster"


def _parameters(obj: JSON, _now: datetime) -> str:
    parameters = spec_of(obj).get("parameters")
    if not parameters:
        return NONE
    group = parameters.get("apiGroup")
    return f"{parameters['kind']}{'.' + group if group is not None else ''}/{parameters['name']}"


STRATEGY = Strategy(
    default=_default,
    validate=validate_ingress_class,
    validate_update=validate_ingress_class_update,
    update_steps="usw",
    cells=row(text_of("spec.controller"), _parameters, AGE),
)
