"""Services, for a cluster of one address family.

Sources: pkg/apis/core/validation/validation.go and pkg/registry/core/service/storage of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from ipaddress import ip_network

from kubeloop.devcluster.api.selectable_fields import METADATA, fields
from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.kinds.core.service_addresses import (
    NOT_FOR_EXTERNAL_NAME,
    UNCHANGEABLE,
    address_field_errors,
    cluster_ips,
    is_headless,
    needs_cluster_ip,
    needs_health_check,
    node_ports,
)
from kubeloop.devcluster.printers.columns import AGE, labels_of, load_balancer_addresses, row, text_of
from kubeloop.devcluster.printers.formatting import NONE, UNKNOWN, spec_of
from kubeloop.devcluster.validation.common.error_list import (
    PROTOCOLS,
    ErrorList,
    validate_labels,
    validate_port_number_or_name,
)
from kubeloop.devcluster.validation.common.ip_addresses import validate_cidr, validate_ip
from kubeloop.devcluster.validation.warnings.pod_warnings import load_balancer_status_warnings
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_1035_label, dns_label, dns_subdomain, port_number, qualified_name
from kubeloop.kube.values.ip_addresses import sloppy_ip

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_LOAD_BALANCER_ONLY = "may only be used when `type` is 'LoadBalancer'"
_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_HINTS, _TOPOLOGY_MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"


def is_externally_accessible(spec: JSON) -> bool:
    kind = spec.get("type")
    return kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def validate_service(errors: ErrorList, obj: JSON) -> None:
    """Validate a new Service; its addresses and ports are already allocated."""
    _validate_service_spec(errors, obj, None)


def validate_service_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    spec, before = obj["spec"], old["spec"]
    if spec.get("type") != "ExternalName" and before.get("type") != "ExternalName":
        _validate_changed_addresses(errors, spec, before)
    both_balance = spec.get("type") == before.get("type") == "LoadBalancer"
    if both_balance and spec.get("loadBalancerClass") != before.get("loadBalancerClass"):
        errors.invalid("spec.loadBalancerClass", spec.get("loadBalancerClass"), UNCHANGEABLE)
    _validate_load_balancer_class(errors, spec)
    both_checked = needs_health_check(before) and needs_health_check(spec)
    if both_checked and spec.get("healthCheckNodePort") != before.get("healthCheckNodePort"):
        errors.forbidden("spec.healthCheckNodePort", "field is immutable")
    _validate_service_spec(errors, obj, old)


def _validate_service_spec(errors: ErrorList, obj: JSON, old: JSON | None) -> None:
    annotations, spec = obj["metadata"].get("annotations", {}), obj["spec"]
    before = old["spec"] if old is not None else {}
    if _HINTS in annotations and annotations.get(_TOPOLOGY_MODE, annotations[_HINTS]) != annotations[_HINTS]:
        detail = f"must match annotations[{_HINTS}] when both are specified"
        errors.invalid(f"metadata.annotations[{_TOPOLOGY_MODE}]", annotations[_TOPOLOGY_MODE], detail)
    kind, ports = spec.get("type", ""), spec.get("ports", ())
    headless = is_headless(spec)
    if not ports and not headless and kind != "ExternalName":
        errors.required("spec.ports")
    if headless and kind in ("LoadBalancer", "NodePort"):
        errors.invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        _validate_external_name(errors, spec)
    _validate_ports(errors, ports)
    validate_labels(errors, "spec.selector", spec.get("selector"))
    _validate_session_affinity(errors, spec)
    errors += address_field_errors(spec, before, type(errors))
    old_external_ips = before.get("externalIPs", ())
    for i, external_ip in enumerate(spec.get("externalIPs", ())):
        (validate_reachable_ip if external_ip in old_external_ips else validate_external_ip)(
            errors, f"spec.externalIPs[{i}]", external_ip
        )
    errors.one_of("spec.type", kind, _TYPES)
    if kind == "ClusterIP":
        for i, port in enumerate(ports):
            if port.get("nodePort"):
                errors.forbidden(f"spec.ports[{i}].nodePort", "may not be used when `type` is 'ClusterIP'")
    _validate_unique_ports(errors, ports)
    _validate_source_ranges(errors, obj, old)
    if spec.get("allocateLoadBalancerNodePorts") is not None and kind != "LoadBalancer":
        errors.forbidden("spec.allocateLoadBalancerNodePorts", _LOAD_BALANCER_ONLY)
    _validate_load_balancer_class(errors, spec)
    _validate_traffic_policies(errors, spec)


def _validate_external_name(errors: ErrorList, spec: JSON) -> None:
    if cluster_ips(spec):
        errors.forbidden("spec.clusterIPs", NOT_FOR_EXTERNAL_NAME)
    if spec.get("ipFamilies"):
        errors.forbidden("spec.ipFamilies", NOT_FOR_EXTERNAL_NAME)
    if spec.get("ipFamilyPolicy") is not None:
        errors.forbidden("spec.ipFamilyPolicy", NOT_FOR_EXTERNAL_NAME)
    name = spec.get("externalName", "").removesuffix(".")
    errors.check_required("spec.externalName", name, dns_subdomain)


def _validate_ports(errors: ErrorList, ports: Sequence[JSON]) -> None:
    names: set[str] = set()
    for i, port in enumerate(ports):
        where, name = f"spec.ports[{i}]", port.get("name", "")
        if name:
            errors.check(f"{where}.name", name, dns_label)
            errors.unique(f"{where}.name", name, names)
        elif len(ports) > 1:
            errors.required(f"{where}.name")
        errors.check(f"{where}.port", port.get("port", 0), port_number)
        protocol = port.get("protocol", "")
        errors.one_of(f"{where}.protocol", protocol, PROTOCOLS)
        validate_port_number_or_name(errors, f"{where}.targetPort", port.get("targetPort", 0))
        errors.check(f"{where}.appProtocol", port.get("appProtocol"), qualified_name)


def _validate_session_affinity(errors: ErrorList, spec: JSON) -> None:
    affinity, where = spec.get("sessionAffinity", ""), "spec.sessionAffinityConfig"
    errors.one_of("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    if affinity == "ClientIP":
        seconds = spec.get("sessionAffinityConfig", {}).get("clientIP", {}).get("timeoutSeconds", 0)
        if not 0 < seconds <= 86400:
            detail = "must be greater than 0 and less than 86400"
            errors.invalid(f"{where}.clientIP.timeoutSeconds", seconds, detail)
    elif affinity == "None" and spec.get("sessionAffinityConfig") is not None:
        errors.forbidden(where, "must not be set when session affinity is None")


def validate_external_ip(errors: ErrorList, path: str, text: str) -> None:
    """Validate an address that must be reachable from other nodes."""
    problems = type(errors)()
    validate_ip(problems, path, text)
    if not problems:
        validate_reachable_ip(problems, path, text)
    errors.extend(problems)


def validate_reachable_ip(errors: ErrorList, path: str, text: str) -> None:
    """Reject addresses that are limited to a node or a link. Source: ValidateEndpointIP."""
    address = sloppy_ip(text)
    if address is None:
        errors.invalid(path, text, "must be a valid IP address")
        return
    if address.is_unspecified:
        errors.invalid(path, text, f"may not be unspecified ({text})")
    if address.is_loopback:
        errors.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        errors.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if any(address.version == link_range.version and address in link_range for link_range in _LINK_MULTICAST):
        errors.invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")


_LINK_MULTICAST = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))


def _validate_unique_ports(errors: ErrorList, ports: Sequence[JSON]) -> None:
    node_ports, port_numbers = set(), set()
    for i, port in enumerate(ports):
        key = (port.get("protocol"), port.get("nodePort"))
        if port.get("nodePort") and key in node_ports:
            errors.duplicate(f"spec.ports[{i}].nodePort", port["nodePort"])
        node_ports.add(key)
    for i, port in enumerate(ports):
        key = (port.get("protocol"), port.get("port"))
        if key in port_numbers:
            errors.duplicate(f"spec.ports[{i}]", {"protocol": key[0], "port": key[1]}, type_name="core/v1.ServicePort")
        port_numbers.add(key)


def _validate_source_ranges(errors: ErrorList, obj: JSON, old: JSON | None) -> None:
    """Validate the source ranges of a load balancer, in the field or the annotation; stored ranges may stay."""
    spec, before = obj["spec"], old["spec"] if old is not None else {}
    annotations = obj["metadata"].get("annotations", {})
    ranges, where, old_ranges = spec.get("loadBalancerSourceRanges") or (), "spec.LoadBalancerSourceRanges", set()
    indexed = bool(ranges)
    if ranges:
        old_ranges = {old_range.strip() for old_range in before.get("loadBalancerSourceRanges", ())}
    elif _SOURCE_RANGES not in annotations:
        return
    else:
        text, where = annotations[_SOURCE_RANGES], f"metadata.annotations[{_SOURCE_RANGES}]"
        unchanged = old is not None and old["metadata"].get("annotations", {}).get(_SOURCE_RANGES) == text
        ranges = text.strip().split(",") if text.strip() and not unchanged else ()
    if spec.get("type") != "LoadBalancer":
        errors.forbidden(where, _LOAD_BALANCER_ONLY)
    for i, range_ in enumerate(ranges):
        if range_.strip() not in old_ranges:
            validate_cidr(errors, f"{where}[{i}]" if indexed else where, range_.strip())


def _validate_load_balancer_class(errors: ErrorList, spec: JSON) -> None:
    name = spec.get("loadBalancerClass")
    if name is not None and spec.get("type") != "LoadBalancer":
        errors.forbidden("spec.loadBalancerClass", _LOAD_BALANCER_ONLY)
    elif name is not None:
        errors.check("spec.loadBalancerClass", name, qualified_name)


def _validate_traffic_policies(errors: ErrorList, spec: JSON) -> None:
    policy = spec.get("externalTrafficPolicy", "")
    if not is_externally_accessible(spec):
        if policy:
            errors.invalid("spec.externalTrafficPolicy", policy, "may only be set for externally-accessible services")
    elif policy not in ("Cluster", "Local"):
        errors.not_supported("spec.externalTrafficPolicy", policy, ("Cluster", "Local"))
    port, where = spec.get("healthCheckNodePort", 0), "spec.healthCheckNodePort"
    if port and not needs_health_check(spec):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.invalid(where, port, detail)
    elif port:
        errors.check(where, port, port_number)
    internal_policy = spec.get("internalTrafficPolicy")
    if internal_policy is None:
        if spec.get("type") in ("NodePort", "LoadBalancer", "ClusterIP"):
            errors.required("spec.internalTrafficPolicy")
    elif internal_policy not in ("Cluster", "Local"):
        errors.not_supported("spec.internalTrafficPolicy", internal_policy, ("Cluster", "Local"))
    distribution, supported = spec.get("trafficDistribution"), ("PreferClose", "PreferSameZone", "PreferSameNode")
    errors.one_of("spec.trafficDistribution", distribution, supported)


def _validate_changed_addresses(errors: ErrorList, spec: JSON, before: JSON) -> None:
    """Source: validateUpgradeDowngradeClusterIPs and validateUpgradeDowngradeIPFamilies."""
    cluster_ips_new, cluster_ips_old = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    headless, was_headless = is_headless(spec), is_headless(before)
    if headless and was_headless:
        return
    policy, single = spec.get("ipFamilyPolicy"), spec.get("ipFamilyPolicy") == "SingleStack"
    if len(cluster_ips_new) == len(cluster_ips_old):
        for i, (new, old) in enumerate(zip(cluster_ips_new, cluster_ips_old, strict=True)):
            if new != old:
                errors.invalid(f"spec.clusterIPs[{i}]", cluster_ips_new, UNCHANGEABLE)
    elif not cluster_ips_new:
        errors.invalid("spec.clusterIPs[0]", None, "primary clusterIP can not be unset")
    elif cluster_ips_old and cluster_ips_new[0] != cluster_ips_old[0]:
        errors.invalid("spec.clusterIPs[0]", cluster_ips_new, UNCHANGEABLE)
    if len(cluster_ips_new) == 1 < len(cluster_ips_old) and not single:
        detail = "must be set to 'SingleStack' when releasing the secondary clusterIP"
        errors.invalid("spec.ipFamilyPolicy", policy, detail)
    if headless or was_headless:
        return
    families, old_families = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
    if len(families) == len(old_families):
        for new, old in zip(families, old_families, strict=True):
            if new != old:
                errors.invalid("spec.ipFamilies[0]", families, UNCHANGEABLE)
        return
    if len(families) < len(old_families) and not cluster_ips_new:
        errors.invalid("spec.ipFamilies[0]", families or None, "primary ipFamily can not be unset")
    if families and old_families and families[0] != old_families[0]:
        errors.invalid("spec.ipFamilies[0]", cluster_ips_new or None, UNCHANGEABLE)
    if len(families) == 1 < len(old_families) and not single:
        detail = "must be set to 'SingleStack' when releasing the secondary ipFamily"
        errors.invalid("spec.ipFamilyPolicy", policy, detail)


def validate_service_status_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    path = "status.loadBalancer.ingress"
    ingresses, old_ingresses = (_ingresses(service) for service in (obj, old))
    old_addresses = {ingress.get("ip", "") for ingress in old_ingresses}
    if ingresses and obj["spec"].get("type") != "LoadBalancer":
        errors.forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")
        return
    for i, ingress in enumerate(ingresses):
        where, address, mode = f"{path}[{i}]", ingress.get("ip", ""), ingress.get("ipMode")
        if address:
            validate_ip(errors, f"{where}.ip", address, old_addresses)
        if mode is None and address:
            errors.required(f"{where}.ipMode", "must be specified when `ip` is set")
        elif mode is not None and not address:
            errors.forbidden(f"{where}.ipMode", "may not be specified when `ip` is not set")
        else:
            errors.one_of(f"{where}.ipMode", mode, ("Proxy", "VIP"))
        name = ingress.get("hostname", "")
        if name:
            errors.check(f"{where}.hostname", name, dns_subdomain)
            if sloppy_ip(name) is not None:
                errors.invalid(f"{where}.hostname", name, "must be a DNS name, not an IP address")


def _ingresses(service: JSON) -> Sequence[JSON]:
    ingresses: Sequence[JSON] = service.get("status", {}).get("loadBalancer", {}).get("ingress", ())
    return ingresses


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {})
        if config.get("clientIP", {}).get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    kind = spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort", 0) in (0, ""):
            port["targetPort"] = port.get("port", 0)
    external = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if external:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in obj.get("status", {}).get("loadBalancer", {}).get("ingress", ()):
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _supports_node_ports(spec: JSON) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer")


def _default_on_read(service: JSON) -> None:
    """Drop the internal traffic policy of an ExternalName Service, after its validation."""
    if service["spec"].get("type") == "ExternalName":
        service["spec"].pop("internalTrafficPolicy", None)


def prepare_update(service: JSON, old: JSON, _write: Write) -> None:
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


def _external_ip(service: JSON, now: datetime) -> str:
    spec = spec_of(service)
    external = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or NONE
        case "LoadBalancer":
            balancer = load_balancer_addresses(service, now)
            return ",".join([balancer, *external] if balancer else external) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return UNKNOWN


def _service_port(port: JSON) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node_port}/{port.get('protocol', '')}"


def _ports(service: JSON, _now: datetime) -> str:
    return ",".join(map(_service_port, spec_of(service).get("ports") or ())) or NONE


def _cluster_ip(service: JSON, _now: datetime) -> str:
    addresses: Sequence[str] = spec_of(service).get("clusterIPs") or ()
    return addresses[0] if addresses else NONE


def _warnings(service: JSON, _old: JSON | None) -> Iterator[str]:
    spec = service.get("spec", {})
    if _HINTS in service.get("metadata", {}).get("annotations", {}):
        yield (
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, "
            "please use service.kubernetes.io/topology-mode instead"
        )
    kind = spec.get("type")
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if headless:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if spec.get("externalIPs"):
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    if spec.get("externalIPs") and not headless and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("externalIPs") and kind == "ExternalName":
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if spec.get("externalName") and kind != "ExternalName":
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _is_charged(_service: JSON, _old: JSON, subresource: str) -> bool:
    return not subresource


STRATEGY = Strategy(
    default=_default,
    default_on_read=_default_on_read,
    prepare_update=prepare_update,
    name_check=dns_label,
    strict_name_check=dns_1035_label,
    validate=validate_service,
    validate_update=validate_service_update,
    validate_subresources={"status": validate_service_status_update},
    warnings=_warnings,
    status_warnings=load_balancer_status_warnings,
    is_charged=_is_charged,
    cells=row(text_of("spec.type"), _cluster_ip, _external_ip, _ports, AGE, labels_of("spec.selector")),
    selectable_fields=METADATA | fields("spec.clusterIP", "spec.type"),
)
