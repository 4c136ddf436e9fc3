"""Endpoints. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.kinds.core.service import validate_reachable_ip
from kubeloop.devcluster.printers.columns import AGE, row
from kubeloop.devcluster.printers.formatting import NONE, join_first
from kubeloop.devcluster.validation.common.error_list import PROTOCOLS, ErrorList
from kubeloop.devcluster.validation.common.ip_addresses import ip_warning, validate_ip
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_label, dns_subdomain, port_number, qualified_name


def validate_endpoints(errors: ErrorList, obj: JSON) -> None:
    for i, subset in enumerate(obj.get("subsets", ())):
        where, ports = f"subsets[{i}]", subset.get("ports", ())
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.required(where, "must specify `addresses` or `notReadyAddresses`")
        for name in ("addresses", "notReadyAddresses"):
            for j, address in enumerate(subset.get(name, ())):
                _validate_endpoint_address(errors, f"{where}.{name}[{j}]", address)
        for j, port in enumerate(ports):
            _validate_endpoint_port(errors, f"{where}.ports[{j}]", port, needs_name=len(ports) > 1)


def _validate_endpoint_address(errors: ErrorList, where: str, address: JSON) -> None:
    ip = address.get("ip", "")
    validate_ip(errors, f"{where}.ip", ip)
    errors.check(f"{where}.hostname", address.get("hostname") or None, dns_label)
    errors.check(f"{where}.nodeName", address.get("nodeName"), dns_subdomain)
    validate_reachable_ip(errors, f"{where}.ip", ip)


def _validate_endpoint_port(errors: ErrorList, where: str, port: JSON, *, needs_name: bool) -> None:
    name, number, protocol = port.get("name", ""), port.get("port", 0), port.get("protocol", "")
    if name:
        errors.check(f"{where}.name", name, dns_label)
    elif needs_name:
        errors.required(f"{where}.name")
    errors.check(f"{where}.port", number, port_number)
    errors.required_one_of(f"{where}.protocol", protocol, PROTOCOLS)
    errors.check(f"{where}.appProtocol", port.get("appProtocol"), qualified_name)


def _default(obj: JSON) -> None:
    for subset in obj.get("subsets", ()):
        for port in subset.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _endpoint_addresses(subsets: Iterable[JSON]) -> list[str]:
    endpoints: list[str] = []
    for subset in subsets:
        addresses = [address["ip"] for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        if not ports:
            endpoints += addresses
        for port in ports:
            endpoints += [f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}" for ip in addresses]
    return endpoints


def _addresses(obj: JSON, _now: datetime) -> str:
    subsets = obj.get("subsets")
    return join_first(_endpoint_addresses(subsets), 3, "") if subsets else NONE


_MANAGED_BY = "endpoints.kubernetes.io/managed-by"


def _warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    if obj["metadata"].get("labels", {}).get(_MANAGED_BY) == "endpoint-controller":
        return
    for i, subset in enumerate(obj.get("subsets", ())):
        for name in ("addresses", "notReadyAddresses"):
            for j, address in enumerate(subset.get(name, ())):
                yield ip_warning(f"subsets[{i}].{name}[{j}].ip", address.get("ip", ""))


STRATEGY = Strategy(
    default=_default,
    validate=validate_endpoints,
    validate_update=update_as_create(validate_endpoints),
    update_steps="uws",
    warnings=_warnings,
    cells=row(_addresses, AGE),
)
