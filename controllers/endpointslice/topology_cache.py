"""Topology aware hints: endpoints per zone in proportion to the CPUs of its nodes.

Source: staging/src/k8s.io/endpointslice/topologycache.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from kubeloop.controllers.endpointslice.endpoint_hints import is_endpoint_ready, remove_hints
from kubeloop.controllers.endpointslice.pod_endpoints import ZONE
from kubeloop.controllers.endpointslice.slice_changes import SliceChanges
from kubeloop.kube.objects.api_types import JSONValue, Node
from kubeloop.kube.objects.object_fields import condition_of
from kubeloop.kube.values.quantities import milli_value

_TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
_TOPOLOGY_AWARE_HINTS = "service.kubernetes.io/topology-aware-hints"
_CONTROL_PLANE_LABELS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_OVERLOAD = 0.2  # more endpoints than a zone's share of the CPUs, as a fraction

_NO_ZONE = "One or more endpoints do not have a zone specified"
_NO_HINTS = "No hints allocated for zones"
_ENABLED = "Topology Aware Hints has been enabled"
_DISABLED = "Topology Aware Hints has been disabled"
_NO_NODE_INFORMATION = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
_TOO_FEW_ENDPOINTS = "Insufficient number of endpoints"
_OVER_THRESHOLD = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold"


class HintsEvent(NamedTuple):
    """An event for the Service."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class _Allocation(NamedTuple):
    """Endpoints for one zone."""

    minimum: int
    maximum: int
    desired: float


def wants_topology_hints(annotations: Mapping[str, str]) -> bool:
    return annotations.get(_TOPOLOGY_AWARE_HINTS, annotations.get(_TOPOLOGY_MODE)) in ("Auto", "auto")


def cpu_ratios(nodes: Iterable[Node]) -> dict[str, float]:
    """Return each zone's share in the CPUs of the ready nodes; {} if a node lacks zone or CPUs, or for one zone."""
    cpu_by_zone: Counter[str] = Counter()
    for node in nodes:
        ready = condition_of(node.status.conditions, "Ready")
        is_control_plane = any(label in node.metadata.labels for label in _CONTROL_PLANE_LABELS)
        if is_control_plane or ready is None or ready.status != "True":
            continue
        zone = node.metadata.labels.get(ZONE)
        cpu_milli = milli_value(node.status.allocatable.get("cpu", 0))
        if not zone or not cpu_milli:
            return {}
        cpu_by_zone[zone] += cpu_milli
    total = cpu_by_zone.total()
    return {zone: cpu_by_zone[zone] / total for zone in sorted(cpu_by_zone)} if len(cpu_by_zone) > 1 else {}


class TopologyCache:
    """Shares of the zones, and the Services with hints."""

    def __init__(self) -> None:
        self.ratios: dict[str, float] = {}
        self._hints: dict[str, set[str]] = {}  # Service -> address types with hints
        self._populated: set[str] = set()  # Services with hints

    def services(self) -> list[str]:
        """Return the Services with topology hints."""
        return list(self._hints)

    def forget(self, service: str, address_type: str) -> None:
        hints = self._hints.get(service, set())
        hints.discard(address_type)
        if not hints:
            self._hints.pop(service, None)
        self._populated.discard(service)

    def disable(self, service: str, address_type: str) -> list[HintsEvent]:
        """Forget the hints of a Service that does not want them. Returns an event if it had some."""
        had_hints = service in self._populated
        self.forget(service, address_type)
        return [_disabled(_DISABLED, address_type)] if had_hints else []

    def add_hints(self, service: str, address_type: str, changes: SliceChanges) -> list[HintsEvent]:
        """Set the hints of the changed slices, and of unchanged ones whose hints are not valid."""
        slices = (*changes.create, *changes.update, *changes.unchanged)
        ready_endpoints = sum(is_endpoint_ready(it) for current in slices for it in current.get("endpoints") or ())
        allocations, problem = allocate(self.ratios, ready_endpoints)
        if not problem:
            problem = _set_hints(changes, allocations)
        if problem:
            self.forget(service, address_type)
            remove_hints(changes)
            return [_disabled(problem, address_type)]
        was_enabled = service in self._populated
        self._hints.setdefault(service, set()).add(address_type)
        self._populated.add(service)
        if was_enabled:
            return []
        return [HintsEvent("Normal", "TopologyAwareHintsEnabled", _message(_ENABLED, address_type))]


def _disabled(problem: str, address_type: str) -> HintsEvent:
    return HintsEvent("Warning", "TopologyAwareHintsDisabled", _message(problem, address_type))


def _message(text: str, address_type: str) -> str:
    return f"{text}, addressType: {address_type}"


def allocate(ratios: Mapping[str, float], endpoints: int) -> tuple[dict[str, _Allocation], str]:
    """Return the number of endpoints per zone, or the reason why hints are not possible."""
    if not ratios:
        return {}, _NO_NODE_INFORMATION
    counts = f"({endpoints} endpoints, {len(ratios)} zones)"
    if len(ratios) > endpoints:
        return {}, f"{_TOO_FEW_ENDPOINTS} {counts}"
    minimums = {zone: math.ceil(ratio * endpoints * (1 / (1 + _OVERLOAD))) for zone, ratio in ratios.items()}
    spare = endpoints - sum(minimums.values())
    if spare < 0:
        return {}, f"{_OVER_THRESHOLD} {counts}"
    return {
        zone: _Allocation(minimum, minimum + spare, max(ratios[zone] * endpoints, minimum))
        for zone, minimum in minimums.items()
    }, ""


def _set_hints(changes: SliceChanges, allocations: Mapping[str, _Allocation]) -> str:
    """Set hints, first for the endpoint's own zone. Returns the reason of a failure, or ""."""
    zones = _take_valid_slices(changes, allocations)
    endpoints = [it for current in (*changes.create, *changes.update) for it in current["endpoints"]]
    ready = [endpoint for endpoint in endpoints if is_endpoint_ready(endpoint)]
    for endpoint in ready:
        zone = endpoint.get("zone")
        if not zone:
            return _NO_ZONE
        zones[zone] += 1
        endpoint["hints"] = _zone_hint(zone)
    giving, receiving = _transfers(allocations, zones)
    for endpoint in ready:
        if giving[endpoint["zone"]] > 0 and +receiving:
            receiver = next(iter(+receiving))
            endpoint["hints"] = _zone_hint(receiver)
            for zone, change in ((endpoint["zone"], -1), (receiver, 1)):
                zones[zone] += change
            giving[endpoint["zone"]] -= 1
            receiving[receiver] -= 1
    return "" if zones else _NO_HINTS


def _zone_hint(zone: str) -> JSONValue:
    return {"forZones": [{"name": zone}]}


def _take_valid_slices(changes: SliceChanges, allocations: Mapping[str, _Allocation]) -> Counter[str]:
    """Move unchanged slices whose hints are missing or exceed a zone's share to those to update.

    Returns the hints per zone of the others.
    """
    zones: Counter[str] = Counter()
    unchanged = []
    for current in changes.unchanged:
        hints = _hints_by_zone(current, zones, allocations)
        if hints is None:
            copies = [dict(endpoint) for endpoint in current.get("endpoints") or ()]
            changes.update.append({**current, "metadata": {**current["metadata"]}, "endpoints": copies})
        else:
            unchanged.append(current)
            zones.update(hints)
    changes.unchanged = unchanged
    return zones


def _hints_by_zone(
    current: JSONValue, zones: Mapping[str, int], allocations: Mapping[str, _Allocation]
) -> Counter[str] | None:
    """Return the hints of a slice per zone, None if they are not valid."""
    counts: Counter[str] = Counter()
    for endpoint in current.get("endpoints") or ():
        if not is_endpoint_ready(endpoint):
            continue
        hinted = (endpoint.get("hints") or {}).get("forZones") or ()
        if not hinted or any(it["name"] not in allocations for it in hinted):
            return None
        counts.update(it["name"] for it in hinted)
    exceeds = any(count + zones.get(zone, 0) > allocations[zone].maximum for zone, count in counts.items())
    return None if exceeds else counts


def _transfers(allocations: Mapping[str, _Allocation], zones: Mapping[str, int]) -> tuple[Counter[str], Counter[str]]:
    """Return how many endpoints zones with too many give, and zones with too few receive."""
    surplus = {zone: zones.get(zone, 0) - allocation.desired for zone, allocation in allocations.items()}
    spare = {zone: count for zone, count in surplus.items() if count > 0}
    lacking = {zone: -count for zone, count in surplus.items() if count < 0}
    giving: Counter[str] = Counter()
    receiving: Counter[str] = Counter()
    while spare and lacking:
        giver = max(spare, key=spare.__getitem__)
        receiver = max(lacking, key=lacking.__getitem__)
        most = max(spare[giver], lacking[receiver])
        if most < 1.0 or min(spare[giver], lacking[receiver]) < 0.5:
            break
        giving[giver] += 1
        receiving[receiver] += 1
        spare[giver] -= 1
        lacking[receiver] -= 1
    return giving, receiving
