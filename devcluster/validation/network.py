"""Ingresses and their classes, network policies, endpoints and their slices, addresses and ranges of Services.

Sources: pkg/apis/{networking,discovery,core}/validation of Kubernetes v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from ipaddress import IPv4Address

from kubeloop.devcluster.api.name_checks import (
    dns_label,
    dns_subdomain,
    label_value,
    port_name,
    port_number,
    qualified_name,
    regex_error,
)
from kubeloop.devcluster.validation.field import (
    PROTOCOLS,
    Errors,
    cidr,
    ip,
    label_selector,
    labels,
    sloppy_ip,
    sloppy_network,
)
from kubeloop.devcluster.validation.metadata import path_segment
from kubeloop.devcluster.validation.services import reachable_ip
from kubeloop.kube.json_object import JSON


def _segment(errors: Errors, path: str, name: str, *, needed: bool = True) -> None:
    """A name that may stand in a path of the API."""
    if name:
        errors.invalid_each(path, name, path_segment(name))
    elif needed:
        errors.required(path)


# --- ingresses --------------------------------------------------------------------------------------------------------

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_BAD_SEQUENCES, _BAD_ENDINGS = ("//", "/./", "/../", "%2f", "%2F"), ("/..", "/.")
_WILDCARD_LABELS = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WILDCARD_ERROR = regex_error(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
    _WILDCARD_LABELS,
    "*.example.com",
)
_INGRESS_CLASS = "kubernetes.io/ingress.class"


def ingress_create(errors: Errors, obj: JSON) -> None:
    _ingress(errors, obj["spec"])
    named, annotated = obj["spec"].get("ingressClassName"), obj["metadata"].get("annotations", {}).get(_INGRESS_CLASS)
    if annotated is not None and named is not None and annotated != named:
        wrong = "must match `ingressClassName` when both are specified"
        errors.invalid(f"annotations.{_INGRESS_CLASS}", annotated, wrong)


def ingress_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        _ingress(errors, obj["spec"])


def _ingress(errors: Errors, spec: JSON) -> None:
    rules = spec.get("rules", ())
    if not rules and spec.get("defaultBackend") is None:
        errors.invalid("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified")
    if spec.get("defaultBackend") is not None:
        _backend(errors, "spec.defaultBackend", spec["defaultBackend"])
    for i, rule in enumerate(rules):
        where = f"spec.rules[{i}]"
        if host := rule.get("host", ""):
            if sloppy_ip(host) is not None:
                errors.invalid(f"{where}.host", host, "must be a DNS name, not an IP address")
            _host(errors, f"{where}.host", host)
        if rule.get("http") is not None:
            if not rule["http"].get("paths"):
                errors.required(f"{where}.http.paths")
            for j, path in enumerate(rule["http"].get("paths") or ()):
                _ingress_path(errors, f"{where}.http.paths[{j}]", path)
    for i, tls in enumerate(spec.get("tls", ())):
        for j, host in enumerate(tls.get("hosts", ())):
            _host(errors, f"spec.tls[{i}].hosts[{j}]", host)
        if secret := tls.get("secretName", ""):
            errors.invalid_each(f"spec.tls[{i}].secretName", secret, dns_subdomain(secret))
    if "ingressClassName" in spec:
        errors.invalid_each("spec.ingressClassName", spec["ingressClassName"], dns_subdomain(spec["ingressClassName"]))


def _host(errors: Errors, path: str, host: str) -> None:
    if "*" not in host:
        errors.invalid_each(path, host, dns_subdomain(host))
        return
    if len(host) > 253:
        errors.invalid(path, host, "must be no more than 253 characters")
    if not re.fullmatch(_WILDCARD_LABELS, host):
        errors.invalid(path, host, _WILDCARD_ERROR)


def _ingress_path(errors: Errors, where: str, path: JSON) -> None:
    kind, text = path.get("pathType"), path.get("path", "")
    if kind is None:
        errors.required(f"{where}.pathType", "pathType must be specified")
        return
    if kind not in _PATH_TYPES:
        errors.not_supported(f"{where}.pathType", kind, _PATH_TYPES)
    elif not text.startswith("/") and (text or kind != "ImplementationSpecific"):
        errors.invalid(f"{where}.path", text, "must be an absolute path")
    if kind in ("Exact", "Prefix"):
        for each in _BAD_SEQUENCES:
            if each in text:
                errors.invalid(f"{where}.path", text, f"must not contain '{each}'")
        for each in _BAD_ENDINGS:
            if text.endswith(each):
                errors.invalid(f"{where}.path", text, f"cannot end with '{each}'")
    _backend(errors, f"{where}.backend", path.get("backend") or {})


def _backend(errors: Errors, path: str, backend: JSON) -> None:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        errors.invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        _reference(errors, f"{path}.resource", resource)
    elif service is None:
        errors.invalid(path, "", "resource or service backend is required")
    else:
        name, port = service.get("name", ""), service.get("port") or {}
        if not name:
            errors.required(f"{path}.service.name")
        else:
            errors.invalid_each(f"{path}.service.name", name, dns_label(name))
        if port.get("name") and port.get("number"):
            errors.invalid(path, "", "cannot set both port name & port number")
        elif port.get("name"):
            errors.invalid_each(f"{path}.service.port.name", port["name"], port_name(port["name"]))
        elif port.get("number"):
            errors.invalid_each(f"{path}.service.port.number", port["number"], port_number(port["number"]))
        else:
            errors.required(path, "port name or number is required")


def _reference(errors: Errors, path: str, reference: JSON) -> None:
    if reference.get("apiGroup") is not None:
        errors.invalid_each(f"{path}.apiGroup", reference["apiGroup"], dns_subdomain(reference["apiGroup"]))
    _segment(errors, f"{path}.kind", reference.get("kind", ""))
    _segment(errors, f"{path}.name", reference.get("name", ""))


def ingress_status(errors: Errors, obj: JSON, old: JSON) -> None:
    del old
    balancer = obj.get("status", {}).get("loadBalancer", {})
    for i, each in enumerate(balancer.get("ingress", ())):
        where = f"status.loadBalancer.ingress[{i}]"
        if each.get("ip"):
            ip(errors, f"{where}.ip", each["ip"])
        if host := each.get("hostname", ""):
            errors.invalid_each(f"{where}.hostname", host, dns_subdomain(host))
            if sloppy_ip(host) is not None:
                errors.invalid(f"{where}.hostname", host, "must be a DNS name, not an IP address")


_CONTROLLER_LENGTH = 250
_SCOPES = ("Cluster", "Namespace")
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_PATH_ERROR = regex_error("Invalid path", _HTTP_PATH)


def ingress_class_create(errors: Errors, obj: JSON) -> None:
    spec = obj.get("spec", {})
    controller, parameters = spec.get("controller", ""), spec.get("parameters")
    if len(controller.encode()) > _CONTROLLER_LENGTH:
        errors.too_long("spec.controller", _CONTROLLER_LENGTH)
    domain_prefixed_path(errors, "spec.controller", controller)
    if parameters is not None:
        _class_parameters(errors, "spec.parameters", parameters)


def domain_prefixed_path(errors: Errors, path: str, text: str) -> None:
    """A domain, a slash and a path: example.com/ingress. Source: validation.IsDomainPrefixedPath."""
    if not text:
        errors.required(path)
        return
    domain, slash, rest = text.partition("/")
    if not slash or not domain or not rest:
        errors.invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    for wrong in dns_subdomain(domain):
        errors.invalid(path, domain, wrong)
    if not re.fullmatch(_HTTP_PATH, rest):
        errors.invalid(path, rest, _PATH_ERROR)


def _class_parameters(errors: Errors, path: str, parameters: JSON) -> None:
    _reference(errors, path, parameters)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        errors.required(f"{path}.scope")
    elif scope not in _SCOPES:
        errors.not_supported(f"{path}.scope", scope, _SCOPES)
    elif scope == "Namespace":
        if namespace is None:
            errors.required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
        else:
            errors.invalid_each(f"{path}.namespace", namespace, dns_label(namespace))
    elif namespace is not None:
        errors.forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")


def ingress_class_update(errors: Errors, obj: JSON, old: JSON) -> None:
    new, before = obj.get("spec", {}), old.get("spec", {})
    errors.immutable("spec.controller", new.get("controller", ""), before.get("controller", ""))
    ingress_class_create(errors, obj)


# --- network policies -------------------------------------------------------------------------------------------------


def network_policy_create(errors: Errors, obj: JSON, known_ranges: Collection[str] = ()) -> None:
    spec = obj["spec"]
    label_selector(errors, "spec.podSelector", spec.get("podSelector"))
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for i, rule in enumerate(spec.get(direction, ())):
            where = f"spec.{direction}[{i}]"
            for j, port in enumerate(rule.get("ports", ())):
                _policy_port(errors, f"{where}.ports[{j}]", port)
            for j, peer in enumerate(rule.get(peers, ())):
                _policy_peer(errors, f"{where}.{peers}[{j}]", peer, known_ranges)
    types = spec.get("policyTypes", ())
    if len(types) > 2:
        errors.invalid("spec.policyTypes", list(types), "may not specify more than two policyTypes")
        return
    for i, each in enumerate(types):
        if each not in ("Ingress", "Egress"):
            errors.not_supported(f"spec.policyTypes[{i}]", each, ("Ingress", "Egress"))


def network_policy_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        network_policy_create(errors, obj, set(_policy_ranges(old["spec"])))


def _policy_ranges(spec: JSON) -> Iterator[str]:
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(direction, ()):
            for peer in rule.get(peers, ()):
                if "ipBlock" in peer:
                    yield peer["ipBlock"].get("cidr", "")
                    yield from peer["ipBlock"].get("except", ())


def _policy_port(errors: Errors, where: str, each: JSON) -> None:
    protocol, port, last = each.get("protocol"), each.get("port"), each.get("endPort")
    if protocol is not None and protocol not in PROTOCOLS:
        errors.not_supported(f"{where}.protocol", protocol, ("TCP", "UDP", "SCTP"))
    if port is None:
        if last is not None:
            errors.invalid(f"{where}.endPort", last, "may not be specified when `port` is not specified")
    elif type(port) is int:
        errors.invalid_each(f"{where}.port", port, port_number(port))
        if last is not None:
            if last < port:
                errors.invalid(f"{where}.endPort", port, "must be greater than or equal to `port`")
            errors.invalid_each(f"{where}.endPort", last, port_number(last))
    else:
        if last is not None:
            errors.invalid(f"{where}.endPort", last, "may not be specified when `port` is non-numeric")
        errors.invalid_each(f"{where}.port", port, port_name(port))


def _policy_peer(errors: Errors, where: str, peer: JSON, known_ranges: Collection[str]) -> None:
    for name in ("podSelector", "namespaceSelector"):
        if name in peer:
            label_selector(errors, f"{where}.{name}", peer[name])
    if "ipBlock" in peer:
        _ip_block(errors, f"{where}.ipBlock", peer["ipBlock"], known_ranges)
    given = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if name in peer]
    if not given:
        errors.required(where, "must specify a peer")
    elif len(given) > 1 and "ipBlock" in peer:
        errors.forbidden(where, "may not specify both ipBlock and another peer")


def _ip_block(errors: Errors, path: str, block: JSON, known: Collection[str]) -> None:
    whole = block.get("cidr", "")
    if not whole:
        errors.required(f"{path}.cidr")
        return
    cidr(errors, f"{path}.cidr", whole, known)
    network = sloppy_network(whole)
    if network is None:
        return
    for i, each in enumerate(block.get("except", ())):
        where = f"{path}.except[{i}]"
        cidr(errors, where, each, known)
        part = sloppy_network(each)
        if part is None:
            continue
        inside = part.version == network.version and part.network_address in network
        if not inside or network.prefixlen >= part.prefixlen:
            errors.invalid(where, each, "must be a strict subset of `cidr`")


# --- addresses and ranges of Services ---------------------------------------------------------------------------------


def ip_address_name(name: str) -> tuple[str, ...]:
    wrong = Errors()
    strict_ip(wrong, "", name)
    return tuple(each["message"].partition(": ")[2].partition(": ")[2] for each in wrong)


def strict_ip(errors: Errors, path: str, text: str) -> None:
    """An address in the one form that fields of new kinds take."""
    ip(errors, path, text)
    address = sloppy_ip(text)
    plain = address is not None and not isinstance(address, IPv4Address) and address.ipv4_mapped is None
    if plain and str(address) != text:
        errors.invalid(path, text, f'must be in canonical form ("{address}")')


def ip_address_create(errors: Errors, obj: JSON) -> None:
    parent = obj.get("spec", {}).get("parentRef")
    if parent is None:
        errors.required("spec.parentRef")
        return
    path = "spec.parentRef"
    if parent.get("group"):
        errors.invalid_each(f"{path}.group", parent["group"], dns_subdomain(parent["group"]))
    _segment(errors, f"{path}.resource", parent.get("resource", ""))
    _segment(errors, f"{path}.name", parent.get("name", ""))
    _segment(errors, f"{path}.namespace", parent.get("namespace", ""), needed=False)


def ip_address_update(errors: Errors, obj: JSON, old: JSON) -> None:
    ip_address_create(errors, obj)
    new, before = (each.get("spec", {}).get("parentRef") for each in (obj, old))
    errors.immutable("spec.parentRef", new, before, "networking/v1.ParentReference")


def service_cidr_create(errors: Errors, obj: JSON) -> None:
    _ranges(errors, obj.get("spec", {}))


def _ranges(errors: Errors, spec: JSON) -> None:
    given, path = spec.get("cidrs", []), "spec.cidrs"
    if not given:
        errors.required(path, "at least one CIDR required")
        return
    if len(given) > 2:
        errors.invalid(path, spec, "may only hold up to 2 values", "networking/v1.ServiceCIDRSpec")
        return
    for i, each in enumerate(given):
        strict_cidr(errors, f"{path}[{i}]", each)
    networks = [sloppy_network(each) for each in given]
    if len(networks) == 2 and None not in networks and len({n.version for n in networks if n is not None}) == 1:
        told = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        errors.invalid(path, given, told)


def strict_cidr(errors: Errors, path: str, text: str) -> None:
    """A range in the one form that fields of new kinds take."""
    network = cidr(errors, path, text)
    if network is not None and str(network) != text:
        errors.invalid(path, text, f'must be in canonical form ("{network}")')


def service_cidr_update(errors: Errors, obj: JSON, old: JSON) -> None:
    given, before, path = (*(each.get("spec", {}).get("cidrs", []) for each in (obj, old)), "spec.cidrs")
    if len(given) == len(before):
        for i, (new, was) in enumerate(zip(given, before, strict=True)):
            errors.immutable(f"{path}[{i}]", new, was)
    elif (len(before), len(given)) == (1, 2):
        errors.immutable(f"{path}[0]", given[0], before[0])
        _ranges(errors, obj["spec"])
    else:
        errors.immutable(path, given or None, before)


# --- endpoints --------------------------------------------------------------------------------------------------------


def endpoints_create(errors: Errors, obj: JSON) -> None:
    for i, subset in enumerate(obj.get("subsets", ())):
        where, ports = f"subsets[{i}]", subset.get("ports", ())
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.required(where, "must specify `addresses` or `notReadyAddresses`")
        for name in ("addresses", "notReadyAddresses"):
            for j, each in enumerate(subset.get(name, ())):
                _endpoint_address(errors, f"{where}.{name}[{j}]", each)
        for j, port in enumerate(ports):
            _endpoint_port(errors, f"{where}.ports[{j}]", port, needs_name=len(ports) > 1)


def endpoints_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if obj.get("subsets") != old.get("subsets"):
        endpoints_create(errors, obj)


def _endpoint_address(errors: Errors, where: str, each: JSON) -> None:
    address = each.get("ip", "")
    ip(errors, f"{where}.ip", address)
    if each.get("hostname"):
        errors.invalid_each(f"{where}.hostname", each["hostname"], dns_label(each["hostname"]))
    if "nodeName" in each:
        errors.invalid_each(f"{where}.nodeName", each["nodeName"], dns_subdomain(each["nodeName"]))
    reachable_ip(errors, f"{where}.ip", address)


def _endpoint_port(errors: Errors, where: str, port: JSON, *, needs_name: bool) -> None:
    name, number, protocol = port.get("name", ""), port.get("port", 0), port.get("protocol", "")
    if name:
        errors.invalid_each(f"{where}.name", name, dns_label(name))
    elif needs_name:
        errors.required(f"{where}.name")
    errors.invalid_each(f"{where}.port", number, port_number(number))
    if not protocol:
        errors.required(f"{where}.protocol")
    elif protocol not in PROTOCOLS:
        errors.not_supported(f"{where}.protocol", protocol, PROTOCOLS)
    if "appProtocol" in port:
        errors.invalid_each(f"{where}.appProtocol", port["appProtocol"], qualified_name(port["appProtocol"]))


_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_MAX_PORTS, _MAX_ENDPOINTS, _MAX_ADDRESSES, _MAX_TOPOLOGY, _MAX_HINTS = 20_000, 1_000, 100, 16, 8


def endpoint_slice_create(errors: Errors, obj: JSON) -> None:
    kind = obj.get("addressType", "")
    if not kind:
        errors.required("addressType")
    elif kind not in _ADDRESS_TYPES:
        errors.not_supported("addressType", kind, _ADDRESS_TYPES)
    _slice_ports(errors, obj.get("ports") or ())
    _slice_endpoints(errors, obj.get("endpoints") or (), kind)


def endpoint_slice_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if all(obj.get(name) == old.get(name) for name in ("endpoints", "ports", "addressType")):
        return
    whole = obj if obj.get("endpoints") != old.get("endpoints") else {**obj, "endpoints": []}
    endpoint_slice_create(errors, whole)
    errors.immutable("addressType", obj.get("addressType", ""), old.get("addressType", ""))


def _slice_ports(errors: Errors, ports: Sequence[JSON]) -> None:
    if len(ports) > _MAX_PORTS:
        errors.too_many("ports", len(ports), _MAX_PORTS)
        return
    names = set()
    for i, port in enumerate(ports):
        where, name, protocol = f"ports[{i}]", port.get("name", ""), port.get("protocol")
        if name:
            errors.invalid_each(f"{where}.name", name, dns_label(name))
        if name in names:
            errors.duplicate(f"{where}.name", name)
        names.add(name)
        if protocol is None:
            errors.required(f"{where}.protocol")
        elif protocol not in PROTOCOLS:
            errors.not_supported(f"{where}.protocol", protocol, PROTOCOLS)
        if "appProtocol" in port:
            errors.invalid_each(f"{where}.appProtocol", port["appProtocol"], qualified_name(port["appProtocol"]))


def _slice_endpoints(errors: Errors, endpoints: Sequence[JSON], kind: str) -> None:
    if len(endpoints) > _MAX_ENDPOINTS:
        errors.too_many("endpoints", len(endpoints), _MAX_ENDPOINTS)
        return
    for i, each in enumerate(endpoints):
        where, addresses = f"endpoints[{i}]", each.get("addresses") or ()
        if not addresses:
            errors.required(f"{where}.addresses", "must contain at least 1 address")
        elif len(addresses) > _MAX_ADDRESSES:
            errors.too_many(f"{where}.addresses", len(addresses), _MAX_ADDRESSES)
        for j, address in enumerate(addresses):
            _slice_address(errors, f"{where}.addresses", j, address, kind)
        if "nodeName" in each:
            errors.invalid_each(f"{where}.nodeName", each["nodeName"], dns_subdomain(each["nodeName"]))
        topology = each.get("deprecatedTopology", {})
        if len(topology) > _MAX_TOPOLOGY:
            errors.too_many(f"{where}.deprecatedTopology", len(topology), _MAX_TOPOLOGY)
        labels(errors, f"{where}.deprecatedTopology", topology)
        if "hostname" in each:
            errors.invalid_each(f"{where}.hostname", each["hostname"], dns_label(each["hostname"]))
        _hints(errors, f"{where}.hints", each.get("hints") or {})


def _slice_address(errors: Errors, path: str, index: int, address: str, kind: str) -> None:
    where = f"{path}[{index}]"
    if kind == "FQDN":
        fully_qualified(errors, where, address)
        return
    if kind not in ("IPv4", "IPv6"):
        return
    wrong = Errors()
    (ip if kind == "IPv4" else strict_ip)(wrong, where, address)
    if wrong:
        errors.extend(wrong)
        return
    if isinstance(sloppy_ip(address), IPv4Address) != (kind == "IPv4"):
        errors.invalid(path, address, f"must be an {kind} address")
    reachable_ip(errors, where, address)


def fully_qualified(errors: Errors, path: str, name: str) -> None:
    """Source: validation.IsFullyQualifiedDomainName."""
    plain = name.removesuffix(".")
    if not name:
        errors.required(path)
    elif wrong := dns_subdomain(plain):
        errors.invalid_each(path, plain, wrong)
    elif "." not in plain:
        errors.invalid(path, plain, "should be a domain with at least two segments separated by dots")
    else:
        for label in plain.split("."):
            if len(label) > 63:
                errors.invalid(path, label, "must be no more than 63 characters")


def _hints(errors: Errors, path: str, hints: JSON) -> None:
    for name in ("forZones", "forNodes"):
        given, seen = hints.get(name, ()), set()
        if len(given) > _MAX_HINTS:
            errors.too_many(f"{path}.{name}", len(given), _MAX_HINTS)
            return
        for i, each in enumerate(given):
            where, text = f"{path}.{name}[{i}].name", each.get("name", "")
            if text in seen:
                errors.duplicate(where, text)
            seen.add(text)
            errors.invalid_each(where, text, label_value(text) if name == "forZones" else dns_subdomain(text))
