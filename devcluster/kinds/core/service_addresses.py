"""Address fields of Services: addresses and IP families, also when the type changes; their errors.

Pure functions; `cluster_ip_allocation` decides which addresses are free. The cluster has IPv4 only. Source:
pkg/registry/core/service/storage (normalizeClusterIPs, patchAllocatedValues, initIPFamilyFields) and
pkg/registry/core/service/strategy.go of v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.ip_addresses import validate_ip
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.ip_addresses import allocated_ip

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


def node_ports(spec: JSON) -> list[int]:
    return [port["nodePort"] for port in spec.get("ports", ()) if port.get("nodePort")]


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


_FAMILIES = ("IPv4", "IPv6")

_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")

NOT_FOR_EXTERNAL_NAME = "may not be set for ExternalName services"

UNCHANGEABLE = "may not change once set"


def is_headless(spec: JSON) -> bool:
    return cluster_ips(spec) == ["None"]


def cluster_ips(spec: JSON) -> list[str]:
    return list(spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else []))


def address_field_errors(spec: JSON, before: JSON | None, error_list: type[ErrorList] = ErrorList) -> ErrorList:
    """Return the errors of clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy.

    Source: ValidateServiceClusterIPsRelatedFields.
    """
    errors = error_list()
    if spec.get("type") == "ExternalName":
        return errors
    addresses, families = spec.get("clusterIPs") or [], spec.get("ipFamilies") or ()
    first, path = spec.get("clusterIP", ""), "spec.clusterIPs"
    if first and not addresses:
        errors.required(path)
    elif first and addresses[0] != first:
        errors.invalid(path, addresses, "first value must match `clusterIP`")
    elif not first and addresses:
        errors.invalid(path, addresses, "must be empty when `clusterIP` is not specified")
    for i, family in enumerate(families):
        errors.one_of(f"spec.ipFamilies[{i}]", family, _FAMILIES)
        if family in families[:i]:
            errors.duplicate(f"spec.ipFamilies[{i}]", family)
    policy = spec.get("ipFamilyPolicy")
    errors.one_of("spec.ipFamilyPolicy", policy, _POLICIES)
    address_errors, old_addresses = error_list(), (before or {}).get("clusterIPs") or ()
    for i, address in enumerate(addresses):
        if i == 0 and address == "None":
            if len(addresses) > 1:
                address_errors.invalid(path, addresses, "'None' must be the first and only value")
        elif address not in old_addresses:
            validate_ip(address_errors, f"{path}[{i}]", address)
    errors.extend(address_errors)
    if len(addresses) > 2:
        errors.invalid(path, addresses, "may only hold up to 2 values")
    if address_errors or is_headless(spec):
        return errors
    versions = [allocated_ip(address).version for address in addresses]
    if len(addresses) > 1 and set(versions) != {4, 6}:
        errors.invalid(path, addresses, "may specify no more than one IP for each IP family")
    for i, (address, version, family) in enumerate(zip(addresses, versions, families, strict=False)):
        if family in _FAMILIES and family != f"IPv{version}":
            detail = f"expected an {family} value as indicated by `ipFamilies[{i}]`"
            errors.invalid(f"{path}[{i}]", address, detail)
    return errors


def needs_health_check(spec: JSON) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"
