"""Validation of ServiceCIDRs. Source: pkg/apis/networking/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.ip_addresses import sloppy_network, validate_strict_cidr
from kubeloop.kube.json_object import JSON


def validate_service_cidr(errors: ErrorList, obj: JSON) -> None:
    _validate_cidrs(errors, obj.get("spec", {}))


def _validate_cidrs(errors: ErrorList, spec: JSON) -> None:
    given, path = spec.get("cidrs", []), "spec.cidrs"
    if not given:
        errors.required(path, "at least one CIDR required")
        return
    if len(given) > 2:
        errors.invalid(path, spec, "may only hold up to 2 values", "networking/v1.ServiceCIDRSpec")
        return
    for i, each in enumerate(given):
        validate_strict_cidr(errors, f"{path}[{i}]", each)
    networks = [sloppy_network(each) for each in given]
    if len(networks) == 2 and None not in networks and len({n.version for n in networks if n is not None}) == 1:
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        errors.invalid(path, given, detail)


def validate_service_cidr_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    given, before, path = (*(each.get("spec", {}).get("cidrs", []) for each in (obj, old)), "spec.cidrs")
    if len(given) == len(before):
        for i, (new, was) in enumerate(zip(given, before, strict=True)):
            errors.immutable(f"{path}[{i}]", new, was)
    elif (len(before), len(given)) == (1, 2):
        errors.immutable(f"{path}[0]", given[0], before[0])
        _validate_cidrs(errors, obj["spec"])
    else:
        errors.immutable(path, given or None, before)
