"""Devices, slices, classes and claims as typed objects, and the scheduler's view of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any

from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.device_types import (
    AllocationResult,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from kubeloop.kube.objects.resources import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubeloop.scheduler.devices.allocation_results import allocation_results
from kubeloop.scheduler.devices.allocator import NodeSearch, SearchSettings
from kubeloop.scheduler.devices.cluster_devices import ClusterDevices
from kubeloop.scheduler.devices.requests import claim_requests
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
DRIVER = "gpu.example.com"


def device(name: str, **fields: Any) -> JSON:
    """Return a device. `attributes` and `capacity` are plain values by name."""
    attributes = {key: _attribute(value) for key, value in fields.pop("attributes", {}).items()}
    capacity = {
        key: value if isinstance(value, dict) else {"value": value} for key, value in fields.pop("capacity", {}).items()
    }
    return {"name": name, "attributes": attributes, "capacity": capacity, **fields}


def _attribute(value: Any) -> JSON:
    if isinstance(value, list):
        return {f"{_kind(value[0])}s": value}
    return {_kind(value): value}


def _kind(value: Any) -> str:
    return {bool: "bool", int: "int", str: "string"}[type(value)]


def consumes(**counters: str) -> list[JSON]:
    return [{"counterSet": "set", "counters": {name: {"value": amount} for name, amount in counters.items()}}]


def device_slice(node: str | None, *devices: JSON, **fields: Any) -> JSON:
    """Return a slice for a node; None: `fields` select nodes. pool, generation, count, name, driver: short forms."""
    pool = fields.pop("pool", node or "shared")
    driver = fields.pop("driver", DRIVER)
    name = fields.pop("name", f"{pool}-{driver}")
    spec: JSON = {
        "driver": driver,
        "pool": {
            "name": pool,
            "generation": fields.pop("generation", 1),
            "resourceSliceCount": fields.pop("count", 1),
        },
        **({"nodeName": node} if node else {}),
        **({"devices": list(devices)} if devices else {}),
        **fields,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": spec,
    }


def counter_slice(node: str | None, pool: str, count: int, driver: str = DRIVER, **counters: str) -> JSON:
    """Return the slice with the shared counters of a pool."""
    shared = [{"name": "set", "counters": {name: {"value": amount} for name, amount in counters.items()}}]
    fields: JSON = {} if node else {"allNodes": True}
    return device_slice(
        node, pool=pool, count=count, name=f"{pool}-counters", driver=driver, sharedCounters=shared, **fields
    )


def device_class(name: str = "gpu", *expressions: str, **spec: Any) -> JSON:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "uid": f"class-{name}", "resourceVersion": "1"},
        "spec": {"selectors": selectors, **spec},
    }


def request(name: str = "r", device_class: str = "gpu", *expressions: str, **exactly: Any) -> JSON:
    return {"name": name, "exactly": _request_spec(device_class, expressions, exactly)}


def alternative(name: str, device_class: str = "gpu", *expressions: str, **fields: Any) -> JSON:
    return {"name": name, **_request_spec(device_class, expressions, fields)}


def _request_spec(device_class: str, expressions: Iterable[str], fields: JSON) -> JSON:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    mode = {} if fields.get("allocationMode") == "All" else {"allocationMode": "ExactCount", "count": 1}
    return {"deviceClassName": device_class, **({"selectors": selectors} if selectors else {}), **mode, **fields}


def claim(name: str = "claim", *requests: JSON, **fields: Any) -> JSON:
    """Return the claim default/NAME. status, owner (UID of a pod): short forms; others are fields of spec.devices."""
    status = fields.pop("status", {})
    owner = fields.pop("owner", "")
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": True}] if owner else []
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "resourceVersion": fields.pop("version", "1"),
        "ownerReferences": owners,
        **fields.pop("metadata", {}),
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": list(requests or [request()]), **fields}},
        "status": status,
    }


def taint_rule(name: str = "rule", effect: str = "NoExecute", key: str = "example.com/rule", **selector: str) -> JSON:
    """Return a DeviceTaintRule. selector: driver, pool, device; none for all devices."""
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"deviceSelector": selector, "taint": {"key": key, "effect": effect}},
    }


def allocated(*devices: tuple[str, str], node: str = "", **result: Any) -> JSON:
    """Return the status of a claim with these (pool, device). node: the only node that can use them."""
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": name, **result} for pool, name in devices]
    allocation: JSON = {"devices": {"results": results}}
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"allocation": allocation}


_KINDS = {
    "ResourceClaim": (RESOURCE_CLAIMS, ResourceClaim),
    "DeviceClass": (DEVICE_CLASSES, DeviceClass),
    "ResourceSlice": (RESOURCE_SLICES, ResourceSlice),
    "DeviceTaintRule": (DEVICE_TAINT_RULES, DeviceTaintRule),
}


def typed(obj: JSON) -> Any:
    return convert(_KINDS[obj["kind"]][1], obj)


class FilledDevices(ClusterDevices):
    """The devices of a cluster with these objects. apply() and delete() act as its informers."""

    def __init__(self, *objects: JSON, gates: Mapping[str, bool] | None = None, synced: bool = True) -> None:
        client: Any = None
        self._version = 1
        clock = SetClock(datetime(2026, 3, 1, tzinfo=UTC))
        self.informers = InformerFactory(client, clock=clock, rng=random.Random(1))
        super().__init__(self.informers, FeatureGates(gates or {}))
        self.apply(*objects)
        if synced:
            for informer in self.informers.informers:
                informer.mark_stopped()

    def apply(self, *objects: JSON) -> None:
        for obj in objects:
            metadata = obj["metadata"]
            if obj["kind"] != "ResourceClaim":  # the tests of claims set their versions
                self._version += 1
                metadata = {**metadata, "resourceVersion": str(self._version)}
            changed = typed({**obj, "metadata": metadata})
            self.informers.informer(_KINDS[obj["kind"]][0]).apply("MODIFIED", changed, 0)

    def delete(self, *objects: JSON) -> None:
        for obj in objects:
            self.informers.informer(_KINDS[obj["kind"]][0]).apply("DELETED", typed(obj), 0)


def allocate(
    devices: FilledDevices,
    *claims: JSON,
    node: str = "a",
    labels: Mapping[str, str] | None = None,
    now_ns: Callable[[], int] = lambda: 0,
) -> list[AllocationResult] | None:
    """Return the allocation of these claims on a node, or None. Raises the errors of the search."""
    entries = [
        claim_requests(typed(claim), devices.device_class, devices.features, devices.selector_lists) for claim in claims
    ]
    settings = SearchSettings(devices.features, devices.selectors, devices.usage.pool, now_ns, 1.0)
    pools = devices.pools.pools(node, labels or {})
    allocation = NodeSearch(entries, pools, node, labels or {}, settings).run()
    share_ids = (f"share-{number}" for number in count(1))
    if allocation is None:
        return None
    return allocation_results(entries, allocation, node, devices.features, lambda: next(share_ids))


def chosen(allocations: list[AllocationResult] | None) -> list[str] | None:
    """Return the devices of an allocation as "request: pool/device"."""
    if allocations is None:
        return None
    return [
        f"{result.request}: {result.pool}/{result.device}"
        for allocation in allocations
        for result in allocation.devices.results
    ]
