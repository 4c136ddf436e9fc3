"""Cells of Services, endpoints, Ingresses and network policies."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kubeloop.devcluster.printers.formatting import (
    NONE,
    UNKNOWN,
    UNSET,
    Cells,
    Print,
    age_of,
    at_most,
    labels_text,
    name_of,
    selector_of,
    spec_of,
    status_of,
)
from kubeloop.kube.json_object import JSON


def _balancer_addresses(obj: JSON) -> str:
    ingress = (status_of(obj).get("loadBalancer") or {}).get("ingress") or ()
    return ",".join(sorted({each.get("ip") or each.get("hostname", "") for each in ingress} - {""}))


def _external_ip(service: JSON) -> str:
    spec = spec_of(service)
    external = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or NONE
        case "LoadBalancer":
            balancer = _balancer_addresses(service)
            return ",".join([balancer, *external] if balancer else external) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return UNKNOWN


def _service_port(port: JSON) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node_port}/{port.get('protocol', '')}"


def _service(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    addresses = spec.get("clusterIPs") or ()
    return [
        name_of(obj),
        spec.get("type", ""),
        addresses[0] if addresses else NONE,
        _external_ip(obj),
        ",".join(_service_port(port) for port in spec.get("ports") or ()) or NONE,
        age_of(obj, now),
        labels_text(spec.get("selector")),
    ]


def _endpoint_addresses(subsets: Iterable[JSON]) -> list[str]:
    found: list[str] = []
    for subset in subsets:
        addresses = [each["ip"] for each in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        if not ports:
            found += addresses
        for port in ports:
            found += [f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}" for ip in addresses]
    return found


def _endpoints(obj: JSON, now: datetime) -> Cells:
    subsets = obj.get("subsets") or ()
    shown = at_most(_endpoint_addresses(subsets), 3, "") if subsets else NONE
    return [name_of(obj), shown, age_of(obj, now)]


def _endpoint_slice(obj: JSON, now: datetime) -> Cells:
    ports = [
        str(each["port"]) if each.get("port") is not None else "*" if each.get("name") is None else each["name"]
        for each in obj.get("ports") or ()
    ]
    addresses = [address for each in obj.get("endpoints") or () for address in each.get("addresses") or ()]
    kind = obj.get("addressType", "")
    return [name_of(obj), kind, at_most(ports, 3, UNSET), at_most(addresses, 3, UNSET), age_of(obj, now)]


def _ingress(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    rules = spec.get("rules") or ()
    hosts = [rule["host"] for rule in rules if rule.get("host")]
    shown = ",".join(hosts[:3]) or "*"
    if len(hosts) >= 3 and len(rules) > 3:
        shown += f" + {len(rules) - 3} more..."
    return [
        name_of(obj),
        spec.get("ingressClassName") or NONE,
        shown,
        _balancer_addresses(obj),
        "80, 443" if spec.get("tls") else "80",
        age_of(obj, now),
    ]


def _ingress_class(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    shown = NONE
    if parameters := spec.get("parameters"):
        group = parameters.get("apiGroup")
        shown = f"{parameters['kind']}{'.' + group if group is not None else ''}/{parameters['name']}"
    return [name_of(obj), spec.get("controller", ""), shown, age_of(obj, now)]


def _network_policy(obj: JSON, now: datetime) -> Cells:
    return [name_of(obj), selector_of(spec_of(obj).get("podSelector") or {}), age_of(obj, now)]


PRINTERS: dict[str, Print] = {
    "endpoints": _endpoints,
    "endpointslices.discovery.k8s.io": _endpoint_slice,
    "ingressclasses.networking.k8s.io": _ingress_class,
    "ingresses.networking.k8s.io": _ingress,
    "networkpolicies.networking.k8s.io": _network_policy,
    "services": _service,
}
