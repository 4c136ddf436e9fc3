"""EndpointSlices. Source: pkg/apis/discovery/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from ipaddress import IPv4Address
from typing import Any

from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.kinds.core.service import validate_reachable_ip
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.printers.formatting import UNSET, join_first
from kubeloop.devcluster.validation.common.error_list import PROTOCOLS, ErrorList, validate_labels
from kubeloop.devcluster.validation.common.ip_addresses import ip_warning, validate_ip, validate_strict_ip
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_label, dns_subdomain, label_value, qualified_name
from kubeloop.kube.values.ip_addresses import sloppy_ip

_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_MAX_PORTS, _MAX_ENDPOINTS, _MAX_ADDRESSES, _MAX_TOPOLOGY, _MAX_HINTS = 20_000, 1_000, 100, 16, 8


def validate_endpoint_slice(errors: ErrorList, obj: JSON) -> None:
    kind = obj.get("addressType", "")
    errors.required_one_of("addressType", kind, _ADDRESS_TYPES)
    _validate_slice_ports(errors, obj.get("ports") or ())
    _validate_slice_endpoints(errors, obj.get("endpoints") or (), kind)


def validate_endpoint_slice_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    if all(obj.get(name) == old.get(name) for name in ("endpoints", "ports", "addressType")):
        return
    whole = obj if obj.get("endpoints") != old.get("endpoints") else {**obj, "endpoints": []}
    validate_endpoint_slice(errors, whole)
    errors.immutable("addressType", obj.get("addressType", ""), old.get("addressType", ""))


def _validate_slice_ports(errors: ErrorList, ports: Sequence[JSON]) -> None:
    if not errors.at_most("ports", ports, _MAX_PORTS):
        return
    names: set[str] = set()
    for i, port in enumerate(ports):
        where, name, protocol = f"ports[{i}]", port.get("name", ""), port.get("protocol")
        errors.check(f"{where}.name", name or None, dns_label)
        errors.unique(f"{where}.name", name, names)
        if protocol is None:
            errors.required(f"{where}.protocol")
        elif protocol not in PROTOCOLS:
            errors.not_supported(f"{where}.protocol", protocol, PROTOCOLS)
        errors.check(f"{where}.appProtocol", port.get("appProtocol"), qualified_name)


def _validate_slice_endpoints(errors: ErrorList, endpoints: Sequence[JSON], kind: str) -> None:
    if not errors.at_most("endpoints", endpoints, _MAX_ENDPOINTS):
        return
    for i, endpoint in enumerate(endpoints):
        where, addresses = f"endpoints[{i}]", endpoint.get("addresses") or ()
        if not addresses:
            errors.required(f"{where}.addresses", "must contain at least 1 address")
        elif len(addresses) > _MAX_ADDRESSES:
            errors.too_many(f"{where}.addresses", len(addresses), _MAX_ADDRESSES)
        for j, address in enumerate(addresses):
            _validate_slice_address(errors, f"{where}.addresses", j, address, kind)
        errors.check(f"{where}.nodeName", endpoint.get("nodeName"), dns_subdomain)
        topology = endpoint.get("deprecatedTopology", {})
        errors.at_most(f"{where}.deprecatedTopology", topology, _MAX_TOPOLOGY)
        validate_labels(errors, f"{where}.deprecatedTopology", topology)
        errors.check(f"{where}.hostname", endpoint.get("hostname"), dns_label)
        _validate_endpoint_hints(errors, f"{where}.hints", endpoint.get("hints") or {})


def _validate_slice_address(errors: ErrorList, path: str, index: int, address: str, kind: str) -> None:
    where = f"{path}[{index}]"
    if kind == "FQDN":
        validate_fully_qualified_domain_name(errors, where, address)
        return
    if kind not in ("IPv4", "IPv6"):
        return
    problems = type(errors)()
    (validate_ip if kind == "IPv4" else validate_strict_ip)(problems, where, address)
    if problems:
        errors.extend(problems)
        return
    if isinstance(sloppy_ip(address), IPv4Address) != (kind == "IPv4"):
        errors.invalid(path, address, f"must be an {kind} address")
    validate_reachable_ip(errors, where, address)


def validate_fully_qualified_domain_name(errors: ErrorList, path: str, name: str) -> None:
    """Validate a fully qualified domain name. Source: validation.IsFullyQualifiedDomainName."""
    plain = name.removesuffix(".")
    if not name:
        errors.required(path)
    elif problems := dns_subdomain(plain):
        errors.invalid_each(path, plain, problems)
    elif "." not in plain:
        errors.invalid(path, plain, "should be a domain with at least two segments separated by dots")
    else:
        for label in plain.split("."):
            if len(label) > 63:
                errors.invalid(path, label, "must be no more than 63 characters")


def _validate_endpoint_hints(errors: ErrorList, path: str, hints: JSON) -> None:
    for name in ("forZones", "forNodes"):
        entries, seen = hints.get(name, ()), set[str]()
        if not errors.at_most(f"{path}.{name}", entries, _MAX_HINTS):
            return
        for i, entry in enumerate(entries):
            where, text = f"{path}.{name}[{i}].name", entry.get("name", "")
            errors.unique(where, text, seen)
            errors.invalid_each(where, text, label_value(text) if name == "forZones" else dns_subdomain(text))


def _default(obj: JSON) -> None:
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _ports(obj: JSON, _now: datetime) -> str:
    ports = [
        str(port["port"]) if port.get("port") is not None else "*" if port.get("name") is None else port["name"]
        for port in obj.get("ports") or ()
    ]
    return join_first(ports, 3, UNSET)


def _addresses(obj: JSON, _now: datetime) -> str:
    addresses = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return join_first(addresses, 3, UNSET)


_SLICE_CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")


def _warnings(obj: JSON, old: JSON | None) -> Iterator[str]:
    if old is None and obj.get("addressType") == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"
    if obj["metadata"].get("labels", {}).get(_MANAGED_BY) in _SLICE_CONTROLLERS:
        return
    for i, endpoint in enumerate(obj.get("endpoints") or ()):
        for j, address in enumerate(endpoint.get("addresses") or ()):
            yield ip_warning(f"endpoints[{i}].addresses[{j}]", address)


def _drop_deprecated_topology(obj: JSON, *_: Any) -> None:
    """Drop deprecatedTopology, a field of v1beta1 of which v1 has only the zone."""
    for endpoint in obj.get("endpoints") or ():
        endpoint.pop("deprecatedTopology", None)


def _prepare_update(endpoint_slice: JSON, old: JSON, _write: Write) -> None:
    """Increase the generation if the endpoints change, even if only deprecated topology is dropped."""
    if endpoint_slice.get("endpoints") != old.get("endpoints"):
        endpoint_slice["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    _drop_deprecated_topology(endpoint_slice)


STRATEGY = Strategy(
    default=_default,
    prepare_create=_drop_deprecated_topology,
    prepare_update=_prepare_update,
    validate=validate_endpoint_slice,
    validate_update=validate_endpoint_slice_update,
    update_steps="ws",
    warnings=_warnings,
    cells=row(text_of("addressType"), _ports, _addresses, AGE),
)
