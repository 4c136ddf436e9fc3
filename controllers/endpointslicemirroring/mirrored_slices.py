"""EndpointSlices that mirror an Endpoints object: those to create, update and delete. Pure functions of JSON.

Source: v1.36 pkg/controller/endpointslicemirroring/reconciler.go, reconciler_helpers.go, utils.go.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kubeloop.controllers.runtime.services.endpoint_slices import (
    MANAGED_BY,
    SERVICE_NAME,
    EndpointKey,
    endpoint_key,
    port_key,
    same_endpoint,
    slice_name,
    slice_name_prefix,
    sorted_ports,
)
from kubeloop.controllers.runtime.services.service_pods import LAST_CHANGE_TRIGGER_TIME
from kubeloop.controllers.runtime.services.subset_packing import LEADER, repacked_subsets
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.objects.resources import ENDPOINTS
from kubeloop.kube.values.ip_addresses import allocated_ip, sloppy_ip

CONTROLLER = "endpointslicemirroring-controller.k8s.io"
_SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"
_OWN_LABELS = frozenset({MANAGED_BY, SERVICE_NAME})
_OTHER_ANNOTATIONS = frozenset({LAST_CHANGE_TRIGGER_TIME, "kubectl.kubernetes.io/last-applied-configuration"})

_GroupKey = tuple[str, bytes]  # address type and ports


class _Group(msgspec.Struct):
    """Endpoints of one address type with the same ports, which one slice holds."""

    ports: list[JSONValue]
    endpoints: dict[EndpointKey, JSONValue] = {}


class MirrorChanges(msgspec.Struct):
    """Slices to write. unchanged: those that mirror the Endpoints already.

    invalid: number of addresses that are no IP addresses. skipped: of these and of those above the limit.
    added, updated, removed: number of endpoints. sizes: endpoints and slices of each group afterwards.
    """

    create: list[JSONValue] = []
    update: list[JSONValue] = []
    delete: list[JSONValue] = []
    unchanged: list[JSONValue] = []
    invalid: int = 0
    skipped: int = 0
    added: int = 0
    updated: int = 0
    removed: int = 0
    sizes: list[tuple[int, int]] = []


def is_mirrored(endpoints: JSONValue) -> bool:
    """Return False for Endpoints that say so by a label, and for the lock of a leader election."""
    metadata = endpoints["metadata"]
    skips = (metadata.get("labels") or {}).get(_SKIP_MIRROR) == "true"
    return not skips and LEADER not in (metadata.get("annotations") or {})


def mirror_changes(endpoints: JSONValue, existing: Iterable[JSONValue], max_endpoints: int) -> MirrorChanges:
    """Return the changes of the slices of an Endpoints object.

    existing: its slices, of this controller, in any order. max_endpoints: limit of addresses per subset.
    """
    changes = MirrorChanges()
    groups = _desired_groups(endpoints, max_endpoints, changes)
    by_group: dict[_GroupKey, list[JSONValue]] = {}
    for current in sorted(existing, key=slice_name):
        by_group.setdefault((current["addressType"], port_key(current.get("ports"))), []).append(current)
    for key, group in groups.items():
        slices = by_group.pop(key, [])
        written = _mirror_group(endpoints, key[0], group, slices, max_endpoints, changes)
        changes.sizes.append((len(group.endpoints), written))
    for slices in by_group.values():
        changes.delete += slices
    _reuse_deleted(changes)
    return changes


def _desired_groups(endpoints: JSONValue, max_endpoints: int, changes: MirrorChanges) -> dict[_GroupKey, _Group]:
    groups: dict[_GroupKey, _Group] = {}
    for subset in repacked_subsets(endpoints.get("subsets") or ()):
        ports = sorted_ports([_slice_port(port) for port in subset.get("ports") or ()])
        for address_type in ("IPv4", "IPv6"):
            groups.setdefault((address_type, port_key(ports)), _Group(ports))
        addresses = [
            (address, is_ready)
            for name, is_ready in (("addresses", True), ("notReadyAddresses", False))
            for address in subset.get(name) or ()
        ]
        added = 0
        for address, is_ready in addresses:
            if added >= max_endpoints:
                break
            if sloppy_ip(address["ip"]) is None:
                changes.invalid += 1
                continue
            endpoint, address_type = _endpoint(address, is_ready)
            groups[address_type, port_key(ports)].endpoints[endpoint_key(endpoint)] = endpoint
            added += 1
        changes.skipped += len(addresses) - added
    return groups


def _slice_port(port: JSONValue) -> JSONValue:
    defaulted = {"name": port.get("name", ""), "port": port["port"], "protocol": port["protocol"]}
    return {**defaulted, "appProtocol": port["appProtocol"]} if "appProtocol" in port else defaulted


def _endpoint(address: JSONValue, is_ready: bool) -> tuple[JSONValue, str]:
    """Return the endpoint of an address, and its address type."""
    ip = allocated_ip(address["ip"])
    fields = {name: address[name] for name in ("hostname", "nodeName", "targetRef") if address.get(name)}
    return {"addresses": [str(ip)], "conditions": {"ready": is_ready}, **fields}, f"IPv{ip.version}"


def _mirror_group(
    endpoints: JSONValue,
    address_type: str,
    group: _Group,
    slices: list[JSONValue],
    max_endpoints: int,
    changes: MirrorChanges,
) -> int:
    """Add the changes of one group, which the first slice holds. Returns the number of its slices afterwards."""
    if not group.endpoints:
        changes.removed += sum(len(current.get("endpoints") or ()) for current in slices)
        changes.delete += slices
        return 0
    new = _new_slice(endpoints, address_type, group.ports)
    new["endpoints"] = list(group.endpoints.values())[:max_endpoints]
    if not slices:
        changes.added += len(group.endpoints)
        changes.create.append(new)
        return 1
    first, *others = slices
    changes.delete += others
    if not _count_changes(first, group, changes) and _has_metadata_of(first, endpoints):
        changes.unchanged.append(first)
        return 1
    new["metadata"]["name"] = first["metadata"]["name"]
    changes.update.append(new)
    return 1


def _count_changes(current: JSONValue, group: _Group, changes: MirrorChanges) -> bool:
    """Count the endpoints that a slice gets, changes and loses; return True if there are any."""
    matches = updated = removed = 0
    for endpoint in current.get("endpoints") or ():
        desired = group.endpoints.get(endpoint_key(endpoint))
        if desired is None:
            removed += 1
        else:
            matches += 1
            updated += not same_endpoint(desired, endpoint)
    added = len(group.endpoints) - matches
    changes.added += added
    changes.updated += updated
    changes.removed += removed
    return bool(added or updated or removed)


def _has_metadata_of(current: JSONValue, endpoints: JSONValue) -> bool:
    """Return True if a slice has the labels and annotations of the Endpoints, and no earlier ones as its owner."""
    metadata, source = current["metadata"], endpoints["metadata"]
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name not in _OWN_LABELS}
    return (
        labels == (source.get("labels") or {})
        and (metadata.get("annotations") or {}) == _annotations(endpoints)
        and not any(
            owner["kind"] == ENDPOINTS.kind and owner["name"] == source["name"] and owner["uid"] != source["uid"]
            for owner in metadata.get("ownerReferences") or ()
        )
    )


def _annotations(endpoints: JSONValue) -> dict[str, str]:
    annotations = endpoints["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if name not in _OTHER_ANNOTATIONS}


def _new_slice(endpoints: JSONValue, address_type: str, ports: list[JSONValue]) -> JSONValue:
    metadata = endpoints["metadata"]
    owner = {
        "apiVersion": ENDPOINTS.api_version,
        "kind": ENDPOINTS.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": slice_name_prefix(metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": {**(metadata.get("labels") or {}), SERVICE_NAME: metadata["name"], MANAGED_BY: CONTROLLER},
            "annotations": _annotations(endpoints),
            "ownerReferences": [owner],
        },
        "addressType": address_type,
        "ports": ports,
    }


def _reuse_deleted(changes: MirrorChanges) -> None:
    """Replace pairs of a slice to create and one to delete, of the same address type, by an update."""
    created = []
    for new in changes.create:
        reused = next((it for it in changes.delete if it["addressType"] == new["addressType"]), None)
        if reused is None:
            created.append(new)
        else:
            changes.delete.remove(reused)
            new["metadata"]["name"] = reused["metadata"]["name"]
            changes.update.append(new)
    changes.create = created
