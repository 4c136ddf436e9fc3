"""ServiceCIDRs. Source: pkg/apis/networking/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.printers.formatting import NONE
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.ip_addresses import sloppy_network, validate_strict_cidr
from kubeloop.kube.json_object import JSON


def validate_service_cidr(errors: ErrorList, obj: JSON) -> None:
    _validate_cidrs(errors, obj.get("spec", {}))


def _validate_cidrs(errors: ErrorList, spec: JSON) -> None:
    cidrs, path = spec.get("cidrs", []), "spec.cidrs"
    if not errors.require(path, cidrs, "at least one CIDR required"):
        return
    if len(cidrs) > 2:
        errors.invalid(path, spec, "may only hold up to 2 values", "networking/v1.ServiceCIDRSpec")
        return
    for i, text in enumerate(cidrs):
        validate_strict_cidr(errors, f"{path}[{i}]", text)
    networks = [sloppy_network(text) for text in cidrs]
    if len(networks) == 2 and None not in networks and len({n.version for n in networks if n is not None}) == 1:
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        errors.invalid(path, cidrs, detail)


def validate_service_cidr_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    cidrs, before, path = (*(version.get("spec", {}).get("cidrs", []) for version in (obj, old)), "spec.cidrs")
    if len(cidrs) == len(before):
        for i, (new, previous) in enumerate(zip(cidrs, before, strict=True)):
            errors.immutable(f"{path}[{i}]", new, previous)
    elif (len(before), len(cidrs)) == (1, 2):
        errors.immutable(f"{path}[0]", cidrs[0], before[0])
        _validate_cidrs(errors, obj["spec"])
    else:
        errors.immutable(path, cidrs or None, before)


STRATEGY = Strategy(
    status_metadata=(),
    validate=validate_service_cidr,
    validate_update=validate_service_cidr_update,
    cells=row(text_of("spec.cidrs", NONE), AGE),
)
