"""Cells of Services, Endpoints, EndpointSlices, Ingresses and NetworkPolicies."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kubeloop.devcluster.printers.formatting import (
    NONE,
    UNKNOWN,
    UNSET,
    CellPrinter,
    Cells,
    join_first,
    labels_text,
    object_age,
    object_name,
    selector_or_none,
    spec_of,
    status_of,
)
from kubeloop.kube.json_object import JSON


def _load_balancer_addresses(obj: JSON) -> str:
    ingress = (status_of(obj).get("loadBalancer") or {}).get("ingress") or ()
    return ",".join(sorted({entry.get("ip") or entry.get("hostname", "") for entry in ingress} - {""}))


def _external_ip(service: JSON) -> str:
    spec = spec_of(service)
    external = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or NONE
        case "LoadBalancer":
            balancer = _load_balancer_addresses(service)
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
        object_name(obj),
        spec.get("type", ""),
        addresses[0] if addresses else NONE,
        _external_ip(obj),
        ",".join(_service_port(port) for port in spec.get("ports") or ()) or NONE,
        object_age(obj, now),
        labels_text(spec.get("selector")),
    ]


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


def _endpoints(obj: JSON, now: datetime) -> Cells:
    subsets = obj.get("subsets") or ()
    addresses_text = join_first(_endpoint_addresses(subsets), 3, "") if subsets else NONE
    return [object_name(obj), addresses_text, object_age(obj, now)]


def _endpoint_slice(obj: JSON, now: datetime) -> Cells:
    ports = [
        str(port["port"]) if port.get("port") is not None else "*" if port.get("name") is None else port["name"]
        for port in obj.get("ports") or ()
    ]
    addresses = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    kind = obj.get("addressType", "")
    return [object_name(obj), kind, join_first(ports, 3, UNSET), join_first(addresses, 3, UNSET), object_age(obj, now)]


def _ingress(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    rules = spec.get("rules") or ()
    hosts = [(index, rule["host"]) for index, rule in enumerate(rules) if rule.get("host")][:3]
    hosts_text = ",".join(host for _, host in hosts) or "*"
    if len(hosts) == 3 and hosts[-1][0] < len(rules) - 1:  # rules without a host count, too
        hosts_text += f" + {len(rules) - 3} more..."
    return [
        object_name(obj),
        spec.get("ingressClassName") or NONE,
        hosts_text,
        _load_balancer_addresses(obj),
        "80, 443" if spec.get("tls") else "80",
        object_age(obj, now),
    ]


def _ingress_class(obj: JSON, now: datetime) -> Cells:
    spec = spec_of(obj)
    parameters_text = NONE
    if parameters := spec.get("parameters"):
        group = parameters.get("apiGroup")
        parameters_text = f"{parameters['kind']}{'.' + group if group is not None else ''}/{parameters['name']}"
    return [object_name(obj), spec.get("controller", ""), parameters_text, object_age(obj, now)]


def _network_policy(obj: JSON, now: datetime) -> Cells:
    return [object_name(obj), selector_or_none(spec_of(obj).get("podSelector") or {}), object_age(obj, now)]


PRINTERS: dict[str, CellPrinter] = {
    "endpoints": _endpoints,
    "endpointslices.discovery.k8s.io": _endpoint_slice,
    "ingressclasses.networking.k8s.io": _ingress_class,
    "ingresses.networking.k8s.io": _ingress,
    "networkpolicies.networking.k8s.io": _network_policy,
    "services": _service,
}
