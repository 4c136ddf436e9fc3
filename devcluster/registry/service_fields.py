"""Fields of Services that hang together: addresses, families and ports, before and after a type changes.

Deciding functions only; which addresses and ports are free is `allocation`'s. Source: pkg/registry/core/service/storage
(normalizeClusterIPs, patchAllocatedValues, initIPFamilyFields) and pkg/registry/core/service/strategy.go of v1.36. The
cluster has IPv4 alone.
"""

from __future__ import annotations

from ipaddress import ip_address

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.core.service import (
    address_field_errors,
    is_externally_accessible,
    needs_health_check,
)
from kubeloop.kube.json_object import JSON

_SINGLE_STACK, _PREFER_DUAL_STACK, _REQUIRE_DUAL_STACK = "SingleStack", "PreferDualStack", "RequireDualStack"


def prepare_addresses_for_create(spec: JSON) -> ErrorList:
    """Complete, in place, what a new Service says of its addresses; what is wrong with them is all that is said."""
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    return _init_ip_family_fields(spec, None)


def prepare_addresses_for_update(spec: JSON, before: JSON) -> ErrorList:
    """As prepare_addresses_for_create(), for the next version: what was allocated stays where the request leaves it out."""
    _patch_allocated_values(spec, before)
    _normalize_cluster_ips(spec, before)
    return _init_ip_family_fields(spec, before)


def needs_cluster_ip(spec: JSON) -> bool:
    return bool(spec.get("type") != "ExternalName")


def needs_node_ports(spec: JSON) -> bool:
    """Whether ports without a node port get one."""
    kind = spec.get("type")
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False)


def _supports_node_ports(spec: JSON) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer")


def node_ports(spec: JSON) -> list[int]:
    return [port["nodePort"] for port in spec.get("ports", ()) if port.get("nodePort")]


def drop_internal_traffic_policy(spec: JSON) -> None:
    """A Service that is a name elsewhere is shown without; what was given has been looked at all the same."""
    if spec.get("type") == "ExternalName":
        spec.pop("internalTrafficPolicy", None)


def _patch_allocated_values(spec: JSON, before: JSON) -> None:
    if needs_cluster_ip(before) and needs_cluster_ip(spec):
        for name in ("clusterIP", "clusterIPs"):
            if not spec.get(name) and before.get(name):
                spec[name] = before[name]
    if needs_node_ports(before) and needs_node_ports(spec):
        used = {*node_ports(before)} & {*node_ports(spec)}
        known = {port.get("name", ""): port.get("nodePort") for port in before.get("ports", ())}
        for port in spec.get("ports", ()):
            was = known.get(port.get("name", ""))
            if not port.get("nodePort") and was and was not in used:
                port["nodePort"] = was
    if needs_health_check(before) and needs_health_check(spec) and before.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = spec.get("healthCheckNodePort") or before["healthCheckNodePort"]


def _normalize_cluster_ips(spec: JSON, before: JSON) -> None:
    """clusterIP and clusterIPs[0] are the same thing; who changes the older field alone changes both."""
    now, was = spec.get("clusterIP", ""), before.get("clusterIP", "")
    if before.get("clusterIPs") and not spec.get("clusterIPs") and now == was:
        spec["clusterIPs"] = before["clusterIPs"]
    if now != was and spec.get("clusterIPs", []) == before.get("clusterIPs", []):
        if now:
            spec["clusterIPs"] = [now]
        else:
            spec.pop("clusterIPs", None)


def _init_ip_family_fields(spec: JSON, before: JSON | None) -> ErrorList:
    """Choose ipFamilyPolicy and ipFamilies where they are left open."""
    if spec.get("type") == "ExternalName" or (before is not None and _prefers_dual_stack_unchanged(spec, before)):
        return ErrorList()
    without_selector = spec.get("clusterIP") == "None" and not spec.get("selector")
    if spec.get("ipFamilyPolicy") is None:
        had = (before or {}).get("ipFamilyPolicy")
        spec["ipFamilyPolicy"] = had or (_REQUIRE_DUAL_STACK if without_selector else _SINGLE_STACK)
    if detail := address_field_errors(spec, before):
        return detail
    detail = _release_secondary_family(spec, before) if before is not None else ErrorList()
    _check_policy_and_add_families(detail, spec)
    if detail:
        return detail
    if without_selector:  # nobody's addresses are chosen by the server, so both families may be among them
        families = list(spec.get("ipFamilies") or ["IPv4"])
        if len(families) < 2 and spec["ipFamilyPolicy"] != _SINGLE_STACK:
            families.append("IPv6" if families[0] == "IPv4" else "IPv4")
        spec["ipFamilies"] = families
        return detail
    if spec["ipFamilyPolicy"] == _REQUIRE_DUAL_STACK:
        detail.invalid("spec.ipFamilyPolicy", _REQUIRE_DUAL_STACK, "this cluster is not configured for dual-stack services")
    for i, family in enumerate(spec.get("ipFamilies", ())):
        if family != "IPv4":
            detail.invalid(f"spec.ipFamilies[{i}]", family, "not configured on this cluster")
    if not detail and not spec.get("ipFamilies"):
        spec["ipFamilies"] = ["IPv4"]
    return detail


def _prefers_dual_stack_unchanged(spec: JSON, before: JSON) -> bool:
    return (
        spec.get("type") == before.get("type")
        and spec.get("ipFamilyPolicy") == _PREFER_DUAL_STACK
        and before.get("ipFamilyPolicy") in (None, _PREFER_DUAL_STACK)
        and all(spec.get(name, []) == before.get(name, []) for name in ("clusterIPs", "ipFamilies"))
    )


def _release_secondary_family(spec: JSON, before: JSON) -> ErrorList:
    """Who asks for one family gives up the second address and family; who does not may not give up either."""
    problems = ErrorList()
    for name, what in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        now, was = spec.get(name, []), before.get(name, [])
        if spec["ipFamilyPolicy"] == _SINGLE_STACK:
            if now == was and len(now) > 1:
                spec[name] = now[:1]
        elif now and len(now) < len(was):
            detail = f"must be 'SingleStack' to release the secondary {what}"
            problems.invalid("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], detail)
    return problems


def _check_policy_and_add_families(detail: ErrorList, spec: JSON) -> None:
    """What the policy has against the numbers of addresses and families; families that addresses tell are filled in."""
    addresses, families = spec.get("clusterIPs") or [], list(spec.get("ipFamilies") or ())
    if spec["ipFamilyPolicy"] == _SINGLE_STACK:
        needed = "must be 'RequireDualStack' or 'PreferDualStack' when multiple"
        for given, what in ((addresses, "cluster IPs"), (families, "IP families")):
            if len(given) == 2:
                detail.invalid("spec.ipFamilyPolicy", _SINGLE_STACK, f"{needed} {what} are specified")
    for i, address in enumerate(addresses):
        if address == "None":
            break
        if i < len(families):
            continue
        if ip_address(address).version == 6:
            detail.invalid(f"spec.clusterIPs[{i}]", addresses, "IPv6 is not configured on this cluster")
        else:
            families.append("IPv4")
    if families:
        spec["ipFamilies"] = families


def drop_type_dependent_fields(service: JSON, old: JSON) -> None:
    """Take away, in place, values that came along unchanged when the type changed."""
    spec, before = service["spec"], old["spec"]

    def same(*names: str) -> bool:
        return all((spec.get(name) or None) == (before.get(name) or None) for name in names)

    def drop(*names: str) -> None:
        for name in names:
            spec.pop(name, None)

    if needs_cluster_ip(before) and not needs_cluster_ip(spec):
        for names in (("clusterIP", "clusterIPs"), ("ipFamilies",), ("ipFamilyPolicy",)):
            if same(*names):
                drop(*names)
    if _supports_node_ports(before) and not _supports_node_ports(spec) and {*node_ports(spec)} <= {*node_ports(before)}:
        for port in spec.get("ports", ()):
            port.pop("nodePort", None)
    if needs_health_check(before) and not needs_health_check(spec) and same("healthCheckNodePort"):
        drop("healthCheckNodePort")
    if before.get("type") == "LoadBalancer" != spec.get("type"):
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if spec.get(name) == before.get(name):
                drop(name)
    if is_externally_accessible(before) and not is_externally_accessible(spec) and same("externalTrafficPolicy"):
        drop("externalTrafficPolicy")
    if spec.get("type") != "LoadBalancer":
        service["status"] = {**service.get("status", {}), "loadBalancer": {}}
