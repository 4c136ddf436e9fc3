"""IPAddresses. Source: pkg/apis/networking/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.printers.columns import AGE, row
from kubeloop.devcluster.printers.formatting import NONE, spec_of
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.ip_addresses import validate_strict_ip
from kubeloop.devcluster.validation.common.object_meta import validate_path_segment
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_subdomain


def ip_address_name(name: str) -> tuple[str, ...]:
    problems = ErrorList()
    validate_strict_ip(problems, "", name)
    return tuple(problem["message"].partition(": ")[2].partition(": ")[2] for problem in problems)


def validate_ip_address(errors: ErrorList, obj: JSON) -> None:
    parent = obj.get("spec", {}).get("parentRef")
    if parent is None:
        errors.required("spec.parentRef")
        return
    path = "spec.parentRef"
    errors.check(f"{path}.group", parent.get("group") or None, dns_subdomain)
    validate_path_segment(errors, f"{path}.resource", parent.get("resource", ""))
    validate_path_segment(errors, f"{path}.name", parent.get("name", ""))
    validate_path_segment(errors, f"{path}.namespace", parent.get("namespace", ""), needed=False)


def _parent_reference(obj: JSON, _now: datetime) -> str:
    parent = spec_of(obj).get("parentRef")
    if parent is None:
        return NONE
    parts = (parent.get("resource"), parent.get("group"))
    name_parts = [parent.get("namespace"), parent.get("name")]
    return "/".join([".".join(part for part in parts if part).lower(), *(part for part in name_parts if part)])


STRATEGY = Strategy(
    name_check=ip_address_name,
    validate=validate_ip_address,
    validate_update=update_as_create(
        validate_ip_address, ("spec.parentRef", "networking/v1.ParentReference"), unchanged=True
    ),
    update_steps="wus",
    cells=row(_parent_reference, AGE),
)
