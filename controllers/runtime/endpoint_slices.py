"""Fields of EndpointSlices, as JSON, that their controllers share: labels, identity of ports and endpoints.

Pure functions. Source: staging/src/k8s.io/endpointslice/util/controller_utils.go, endpointset.go.
"""

from __future__ import annotations

from typing import Any

import msgspec

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
    return _compared(first) == _compared(second)


def _compared(endpoint: JSONValue) -> list[Any]:
    target = {name: value for name, value in (endpoint.get("targetRef") or {}).items() if name != "resourceVersion"}
    return [endpoint.get("nodeName"), endpoint.get("zone"), endpoint.get("conditions"), target]
