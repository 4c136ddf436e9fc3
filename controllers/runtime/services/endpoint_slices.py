"""Fields of EndpointSlices, as JSON, that their controllers share: labels, identity of ports and endpoints.

Pure functions. Source: staging/src/k8s.io/endpointslice/util/controller_utils.go, endpointset.go.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.controllers.runtime.revisions.name_hash import fnv1a_128
from kubeloop.kube.objects.api_types import JSONValue

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
SERVICE_NAME = "kubernetes.io/service-name"
_MAX_PREFIX = 252  # with the dash, a valid name

EndpointKey = tuple[Any, ...]
"""Identity of an endpoint in all slices: addresses, host name, and the Pod's namespace and name."""


def service_key(endpoint_slice: JSONValue) -> str:
    """Return the key of a slice's Service."""
    metadata = endpoint_slice["metadata"]
    return f"{metadata['namespace']}/{(metadata.get('labels') or {}).get(SERVICE_NAME, '')}"


def slice_name_prefix(service: str) -> str:
    """Return metadata.generateName of the slices of a Service."""
    return f"{service}-" if len(service) < _MAX_PREFIX else service


def slice_name(endpoint_slice: JSONValue) -> str:
    """Return the name of a stored slice."""
    name: str = endpoint_slice["metadata"]["name"]
    return name


def sorted_ports(ports: list[JSONValue]) -> list[JSONValue]:
    """Return the ports of a slice in the order in which kube-controller-manager writes them."""
    return sorted(ports, key=_port_hash) if len(ports) > 1 else ports


def _port_hash(port: JSONValue) -> int:
    """Return FNV-1a (128 bits) of the Go value, as printed for hashes."""
    app_protocol = port.get("appProtocol", "<nil>")
    text = (
        f"(v1.EndpointPort){{Name:(*string){port['name']} Protocol:(*v1.Protocol){port['protocol']}"
        f" Port:(*int32){port['port']} AppProtocol:(*string){app_protocol}}}"
    )
    return fnv1a_128(text.encode())


def port_key(ports: list[JSONValue] | None) -> bytes:
    """Return a key that is equal for lists of equal ports, whatever their order."""
    return msgspec.json.encode(sorted(ports or (), key=msgspec.json.encode), order="sorted")


def endpoint_key(endpoint: JSONValue) -> EndpointKey:
    target = endpoint.get("targetRef") or {}
    return (
        *sorted(endpoint["addresses"]),
        endpoint.get("hostname"),
        target.get("namespace"),
        target.get("name"),
    )


def same_endpoint(first: JSONValue, second: JSONValue) -> bool:
    """Return True if two endpoints with the same key are equal, apart from hints and the version of the Pod."""
    if any(first.get(name) != second.get(name) for name in ("nodeName", "zone", "conditions")):
        return False
    target, other = first.get("targetRef") or {}, second.get("targetRef") or {}
    return bool(target == other or _without_version(target) == _without_version(other))


def _without_version(target: JSONValue) -> JSONValue:
    return {name: value for name, value in target.items() if name != "resourceVersion"}
