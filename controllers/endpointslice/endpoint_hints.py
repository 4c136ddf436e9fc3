"""Hints of endpoints: for spec.trafficDistribution, or none. Pure functions.

Source: staging/src/k8s.io/endpointslice/trafficdist.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.controllers.endpointslice.slice_changes import SliceChanges
from kubeloop.kube.objects.api_types import JSONValue

_PREFER_CLOSE = "PreferClose"
_PREFER_SAME_ZONE = "PreferSameZone"
_PREFER_SAME_NODE = "PreferSameNode"


def is_valid_traffic_distribution(value: str | None, *, prefer_same: bool) -> bool:
    """prefer_same: the feature gate PreferSameTrafficDistribution."""
    return value == _PREFER_CLOSE or (prefer_same and value in (_PREFER_SAME_ZONE, _PREFER_SAME_NODE))


def set_traffic_hints(changes: SliceChanges, traffic_distribution: str) -> None:
    """Set the hints of all ready endpoints, also in slices that had no other change."""
    to_nodes = traffic_distribution == _PREFER_SAME_NODE
    update_slices_with(
        changes,
        lambda endpoint: is_endpoint_ready(endpoint) and endpoint.get("hints") != _close_hints(endpoint, to_nodes),
    )
    for endpoint in _changed_endpoints(changes):
        if is_endpoint_ready(endpoint):
            hints = _close_hints(endpoint, to_nodes)
            if hints is None:
                endpoint.pop("hints", None)
            else:
                endpoint["hints"] = hints


def _close_hints(endpoint: JSONValue, to_nodes: bool) -> JSONValue | None:
    hints: JSONValue = {}
    if "zone" in endpoint:
        hints["forZones"] = [{"name": endpoint["zone"]}]
    if to_nodes and "nodeName" in endpoint:
        hints["forNodes"] = [{"name": endpoint["nodeName"]}]
    return hints or None


def remove_hints(changes: SliceChanges) -> None:
    """Remove the hints of all endpoints, also in slices that had no other change."""
    update_slices_with(changes, lambda endpoint: "hints" in endpoint)
    for endpoint in _changed_endpoints(changes):
        endpoint.pop("hints", None)


def _changed_endpoints(changes: SliceChanges) -> list[JSONValue]:
    return [endpoint for current in (*changes.create, *changes.update) for endpoint in current["endpoints"]]


def update_slices_with(changes: SliceChanges, needs_update: Callable[[JSONValue], bool]) -> None:
    """Move unchanged slices that have such an endpoint to those to update, as copies."""
    unchanged = []
    for current in changes.unchanged:
        endpoints = current.get("endpoints") or []
        if any(needs_update(endpoint) for endpoint in endpoints):
            metadata = {**current["metadata"]}
            copies = [dict(endpoint) for endpoint in endpoints]
            changes.update.append({**current, "metadata": metadata, "endpoints": copies})
        else:
            unchanged.append(current)
    changes.unchanged = unchanged


def is_endpoint_ready(endpoint: JSONValue) -> bool:
    return (endpoint.get("conditions") or {}).get("ready") is True
