"""Dependent fields of Services: addresses, IP families and ports, also when the type changes.

Pure functions; `cluster_ip_allocation` decides which addresses and ports are free. The cluster has IPv4 only. Source:
pkg/registry/core/service/storage (normalizeClusterIPs, patchAllocatedValues, initIPFamilyFields) and
pkg/registry/core/service/strategy.go of v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.ip_addresses import allocated_ip
from kubeloop.devcluster.validation.core.service import (
    address_field_errors,
    is_externally_accessible,
    needs_health_check,
)
from kubeloop.kube.json_object import JSON

_SINGLE_STACK, _PREFER_DUAL_STACK, _REQUIRE_DUAL_STACK = "SingleStack", "PreferDualStack", "RequireDualStack"


def prepare_addresses_for_create(spec: JSON, error_list: type[ErrorList] = ErrorList) -> ErrorList:
    """Complete the address fields of a new Service, in place; return their errors."""
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    return _init_ip_family_fields(spec, None, error_list)


def prepare_addresses_for_update(spec: JSON, before: JSON, error_list: type[ErrorList] = ErrorList) -> ErrorList:
    """Complete the address fields of an update, in place; absent ones retain their allocation; return the errors."""
    _patch_allocated_values(spec, before)
    _normalize_cluster_ips(spec, before)
    return _init_ip_family_fields(spec, before, error_list)


def needs_cluster_ip(spec: JSON) -> bool:
    return bool(spec.get("type") != "ExternalName")


def needs_node_ports(spec: JSON) -> bool:
    """Return True if ports without a node port get one."""
    kind = spec.get("type")
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False)


def _supports_node_ports(spec: JSON) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer")


def node_ports(spec: JSON) -> list[int]:
    return [port["nodePort"] for port in spec.get("ports", ()) if port.get("nodePort")]


def drop_internal_traffic_policy(spec: JSON) -> None:
    """Drop the internal traffic policy of an ExternalName Service, after its validation."""
    if spec.get("type") == "ExternalName":
        spec.pop("internalTrafficPolicy", None)


def _patch_allocated_values(spec: JSON, before: JSON) -> None:
    if needs_cluster_ip(before) and needs_cluster_ip(spec):
        for name in ("clusterIP", "clusterIPs"):
            if not spec.get(name) and before.get(name):
                spec[name] = before[name]
    if needs_node_ports(before) and needs_node_ports(spec):
        requested_old_ports = {*node_ports(before)} & {*node_ports(spec)}
        old_port_by_name = {port.get("name", ""): port.get("nodePort") for port in before.get("ports", ())}
        for port in spec.get("ports", ()):
            old_port = old_port_by_name.get(port.get("name", ""))
            if not port.get("nodePort") and old_port and old_port not in requested_old_ports:
                port["nodePort"] = old_port
    if needs_health_check(before) and needs_health_check(spec) and before.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = spec.get("healthCheckNodePort") or before["healthCheckNodePort"]


def _normalize_cluster_ips(spec: JSON, before: JSON) -> None:
    """Synchronize clusterIP and clusterIPs[0]: a change of the older field alone changes both."""
    new_ip, old_ip = spec.get("clusterIP", ""), before.get("clusterIP", "")
    if before.get("clusterIPs") and not spec.get("clusterIPs") and new_ip == old_ip:
        spec["clusterIPs"] = before["clusterIPs"]
    if new_ip != old_ip and spec.get("clusterIPs", []) == before.get("clusterIPs", []):
        if new_ip:
            spec["clusterIPs"] = [new_ip]
        else:
            spec.pop("clusterIPs", None)


def _init_ip_family_fields(spec: JSON, before: JSON | None, error_list: type[ErrorList]) -> ErrorList:
    """Default ipFamilyPolicy and ipFamilies; return the errors of the address fields."""
    if spec.get("type") == "ExternalName" or (before is not None and _prefers_dual_stack_unchanged(spec, before)):
        return ErrorList()
    without_selector = spec.get("clusterIP") == "None" and not spec.get("selector")
    if spec.get("ipFamilyPolicy") is None:
        old_policy = (before or {}).get("ipFamilyPolicy")
        spec["ipFamilyPolicy"] = old_policy or (_REQUIRE_DUAL_STACK if without_selector else _SINGLE_STACK)
    if errors := address_field_errors(spec, before, error_list):
        return errors
    errors = _release_secondary_family(spec, before) if before is not None else ErrorList()
    _check_policy_and_add_families(errors, spec)
    if errors:
        return errors
    if without_selector:  # the server allocates no address, so both families are possible
        families = list(spec.get("ipFamilies") or ["IPv4"])
        if len(families) < 2 and spec["ipFamilyPolicy"] != _SINGLE_STACK:
            families.append("IPv6" if families[0] == "IPv4" else "IPv4")
        spec["ipFamilies"] = families
        return errors
    if spec["ipFamilyPolicy"] == _REQUIRE_DUAL_STACK:
        errors.invalid(
            "spec.ipFamilyPolicy", _REQUIRE_DUAL_STACK, "this cluster is not configured for dual-stack services"
        )
    for i, family in enumerate(spec.get("ipFamilies", ())):
        if family != "IPv4":
            errors.invalid(f"spec.ipFamilies[{i}]", family, "not configured on this cluster")
    if not errors and not spec.get("ipFamilies"):
        spec["ipFamilies"] = ["IPv4"]
    return errors


def _prefers_dual_stack_unchanged(spec: JSON, before: JSON) -> bool:
    return (
        spec.get("type") == before.get("type")
        and spec.get("ipFamilyPolicy") == _PREFER_DUAL_STACK
        and before.get("ipFamilyPolicy") in (None, _PREFER_DUAL_STACK)
        and all(spec.get(name, []) == before.get(name, []) for name in ("clusterIPs", "ipFamilies"))
    )


def _release_secondary_family(spec: JSON, before: JSON) -> ErrorList:
    """Release the secondary address and family for SingleStack; report a release under another policy."""
    errors = ErrorList()
    for name, noun in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        new_values, old_values = spec.get(name, []), before.get(name, [])
        if spec["ipFamilyPolicy"] == _SINGLE_STACK:
            if new_values == old_values and len(new_values) > 1:
                spec[name] = new_values[:1]
        elif new_values and len(new_values) < len(old_values):
            detail = f"must be 'SingleStack' to release the secondary {noun}"
            errors.invalid("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], detail)
    return errors


def _check_policy_and_add_families(errors: ErrorList, spec: JSON) -> None:
    """Report addresses and families that the policy does not allow; add the families that addresses imply."""
    addresses, families = spec.get("clusterIPs") or [], list(spec.get("ipFamilies") or ())
    if spec["ipFamilyPolicy"] == _SINGLE_STACK:
        message = "must be 'RequireDualStack' or 'PreferDualStack' when multiple"
        for values, noun in ((addresses, "cluster IPs"), (families, "IP families")):
            if len(values) == 2:
                errors.invalid("spec.ipFamilyPolicy", _SINGLE_STACK, f"{message} {noun} are specified")
    for i, address in enumerate(addresses):
        if address == "None":
            break
        if i < len(families):
            continue
        if allocated_ip(address).version == 6:
            errors.invalid(f"spec.clusterIPs[{i}]", addresses, "IPv6 is not configured on this cluster")
        else:
            families.append("IPv4")
    if families:
        spec["ipFamilies"] = families


def drop_type_dependent_fields(service: JSON, old: JSON) -> None:
    """Drop, in place, fields that the new type does not have and that the request did not change."""
    spec, before = service["spec"], old["spec"]

    def unchanged(*names: str) -> bool:
        return all((spec.get(name) or None) == (before.get(name) or None) for name in names)

    def drop(*names: str) -> None:
        for name in names:
            spec.pop(name, None)

    if needs_cluster_ip(before) and not needs_cluster_ip(spec):
        for names in (("clusterIP", "clusterIPs"), ("ipFamilies",), ("ipFamilyPolicy",)):
            if unchanged(*names):
                drop(*names)
    if _supports_node_ports(before) and not _supports_node_ports(spec) and {*node_ports(spec)} <= {*node_ports(before)}:
        for port in spec.get("ports", ()):
            port.pop("nodePort", None)
    if needs_health_check(before) and not needs_health_check(spec) and unchanged("healthCheckNodePort"):
        drop("healthCheckNodePort")
    if before.get("type") == "LoadBalancer" != spec.get("type"):
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if spec.get(name) == before.get(name):
                drop(name)
    if is_externally_accessible(before) and not is_externally_accessible(spec) and unchanged("externalTrafficPolicy"):
        drop("externalTrafficPolicy")
    if spec.get("type") != "LoadBalancer":
        service["status"] = {**service.get("status", {}), "loadBalancer": {}}
