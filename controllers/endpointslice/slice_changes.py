"""EndpointSlices to create, update and delete so that they hold the desired endpoints with few writes. Pure functions.

Slices are JSON, as read; a changed slice is a copy. Source: staging/src/k8s.io/endpointslice/reconciler.go, utils.go.
"""

from __future__ import annotations

import msgspec

from kubeloop.controllers.endpointslice.pod_endpoints import DesiredEndpoints, PortGroup
from kubeloop.controllers.runtime.services.endpoint_slices import (
    MANAGED_BY,
    SERVICE_NAME,
    endpoint_key,
    port_key,
    same_endpoint,
    slice_name,
    slice_name_prefix,
)
from kubeloop.controllers.runtime.services.service_pods import IS_HEADLESS_SERVICE, is_headless
from kubeloop.kube.objects.api_types import JSONValue, Service
from kubeloop.kube.objects.object_fields import controller_reference

CONTROLLER = "endpointslice-controller.k8s.io"
_RESERVED_LABELS = frozenset({MANAGED_BY, SERVICE_NAME, IS_HEADLESS_SERVICE})


class SliceChanges(msgspec.Struct):
    """Slices to write for one address type; `unchanged` ones may still get other hints.

    added, removed: number of endpoints that the slices get and lose.
    """

    create: list[JSONValue] = []
    update: list[JSONValue] = []
    delete: list[JSONValue] = []
    unchanged: list[JSONValue] = []
    added: int = 0
    removed: int = 0

    @property
    def number(self) -> int:
        """Number of slices to write."""
        return len(self.create) + len(self.update) + len(self.delete)


def slice_changes(
    service: Service, existing: list[JSONValue], desired: DesiredEndpoints, address_type: str, max_endpoints: int
) -> SliceChanges:
    """Return the changes of a Service's slices of one address type.

    existing: slices of that type. Without any endpoint, one slice without endpoints and ports remains. The result does
    not depend on the order of `existing` and `desired`, which is that of caches.
    """
    changes = SliceChanges()
    by_ports: dict[bytes, list[JSONValue]] = {}
    for current in sorted(existing, key=slice_name):
        if is_owned(current, service):
            by_ports.setdefault(port_key(current.get("ports")), []).append(current)
        else:
            changes.delete.append(current)
    for key, group in sorted(desired.groups.items()):
        _pack(service, by_ports.pop(key, []), group, changes, address_type, max_endpoints)
    for slices in by_ports.values():
        changes.delete += slices
    if len(changes.delete) == len(existing) and not changes.create:
        _keep_placeholder(changes, new_slice(service, address_type, []))
    return changes


def _keep_placeholder(changes: SliceChanges, placeholder: JSONValue) -> None:
    if len(changes.delete) == 1 and _is_same_placeholder(changes.delete[0], placeholder):
        changes.unchanged += changes.delete
        changes.delete.clear()
    else:
        changes.create.append(placeholder)


def _is_same_placeholder(current: JSONValue, placeholder: JSONValue) -> bool:
    same_fields = all((current.get(name) or []) == placeholder[name] for name in ("endpoints", "ports", "addressType"))
    return same_fields and (current["metadata"].get("labels") or {}) == placeholder["metadata"]["labels"]


def _pack(
    service: Service,
    slices: list[JSONValue],
    group: PortGroup,
    changes: SliceChanges,
    address_type: str,
    max_endpoints: int,
) -> None:
    """Add the changes of the slices with the ports of `group`.

    Endpoints stay in their slices; changed slices are filled first, then at most one unchanged slice, then new ones.
    """
    missing = dict(group.endpoints)
    changed: list[JSONValue] = []
    unchanged: list[JSONValue] = []
    labels = slice_labels(service)
    for current in slices:
        endpoints, has_changed = _remaining(current, missing)
        changes.removed += len(current.get("endpoints") or ()) - len(endpoints)
        if has_changed and not endpoints:
            changes.delete.append(current)
        elif has_changed:
            changed.append(_with(current, endpoints, labels))
        elif _has_other_labels(current, service):
            changed.append(_with(current, current.get("endpoints") or [], labels))
        else:
            unchanged.append(current)
    to_add = [missing[key] for key in sorted(missing, key=repr)]  # a part of a key may be None
    changes.added += len(to_add)
    for target in sorted(changed, key=lambda target: (-len(target["endpoints"]), slice_name(target))):
        _fill(target, to_add, max_endpoints)
    while to_add:
        fitting = _slice_to_fill(unchanged, len(to_add), max_endpoints)
        if fitting is None:
            target = new_slice(service, address_type, group.ports)
            changes.create.append(target)
        else:
            unchanged.remove(fitting)
            target = _with(fitting, fitting.get("endpoints") or [], fitting["metadata"].get("labels") or {})
            changed.append(target)
        _fill(target, to_add, max_endpoints)
    changes.update += changed
    changes.unchanged += unchanged


def _remaining(current: JSONValue, missing: dict[tuple[object, ...], JSONValue]) -> tuple[list[JSONValue], bool]:
    """Return the desired endpoints of a slice, which leave `missing`, and True if they differ from the present ones."""
    endpoints = []
    has_changed = False
    for endpoint in current.get("endpoints") or ():
        desired = missing.pop(endpoint_key(endpoint), None)
        if desired is None or not same_endpoint(desired, endpoint):
            has_changed = True
        if desired is not None:
            endpoints.append(desired)
    return endpoints, has_changed


def _with(current: JSONValue, endpoints: list[JSONValue], labels: dict[str, str]) -> JSONValue:
    """Return a copy with other endpoints and labels, whose endpoints and annotations can be changed."""
    metadata = {**current["metadata"], "labels": dict(labels)}
    return {**current, "metadata": metadata, "endpoints": [dict(endpoint) for endpoint in endpoints]}


def _fill(target: JSONValue, to_add: list[JSONValue], max_endpoints: int) -> None:
    free = max(0, max_endpoints - len(target["endpoints"]))
    target["endpoints"] += to_add[:free]
    del to_add[:free]


def _slice_to_fill(slices: list[JSONValue], count: int, max_endpoints: int) -> JSONValue | None:
    """Return the slice that `count` more endpoints fill best, of equal ones the first by name.

    None if they fit in none, or fill a new slice.
    """
    if count >= max_endpoints:
        return None
    fitting = [it for it in slices if len(it.get("endpoints") or ()) + count <= max_endpoints]
    return min(fitting, key=lambda it: (-len(it.get("endpoints") or ()), slice_name(it)), default=None)


def new_slice(service: Service, address_type: str, ports: list[JSONValue]) -> JSONValue:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": slice_name_prefix(service.metadata.name),
            "namespace": service.metadata.namespace,
            "labels": slice_labels(service),
            "ownerReferences": [controller_reference(service)],
        },
        "addressType": address_type,
        "endpoints": [],
        "ports": ports,
    }


def slice_labels(service: Service) -> dict[str, str]:
    """Return the labels of a Service's slices: those of the Service, and the controller's own."""
    labels = {name: value for name, value in service.metadata.labels.items() if name not in _RESERVED_LABELS}
    if is_headless(service):
        labels[IS_HEADLESS_SERVICE] = ""
    return {**labels, SERVICE_NAME: service.metadata.name, MANAGED_BY: CONTROLLER}


def _has_other_labels(current: JSONValue, service: Service) -> bool:
    """Return True if labels other than the controller's own differ from the Service's."""
    old = {k: v for k, v in (current["metadata"].get("labels") or {}).items() if k not in _RESERVED_LABELS}
    return old != {k: v for k, v in service.metadata.labels.items() if k not in _RESERVED_LABELS}


def is_owned(current: JSONValue, service: Service) -> bool:
    owners = current["metadata"].get("ownerReferences") or ()
    return any((it["uid"], it["kind"], it["apiVersion"]) == (service.metadata.uid, "Service", "v1") for it in owners)


def reuse_deleted(changes: SliceChanges, service: Service) -> None:
    """Replace pairs of a slice to create and one to delete by an update, as far as the Service owns the latter."""
    remaining = []
    for current in changes.delete:
        if changes.create and is_owned(current, service):
            replacement = changes.create.pop()
            replacement["metadata"]["name"] = current["metadata"]["name"]
            changes.update.append(replacement)
        else:
            remaining.append(current)
    changes.delete = remaining
