"""ResourceSlices of simulated nodes, as a DRA driver's kubelet plugin publishes them.

A slice is created when its node starts, replaced when the device file has changed since, and deleted with its node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kubeloop.devcluster.simulation.device_files import DevicePool, counter_objects, device_objects, pools_of
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import RESOURCE_SLICES
from kubeloop.kube.uids import new_uid

_MAX_DEVICES = 128  # per slice
_MAX_ADVANCED_DEVICES = 64  # per slice, if a device has taints or consumes counters


_PUBLISHED = "kubeloop.dev/devices"  # annotation of the slices that are published here


class ResourceSlices:
    """The slices of all nodes. pools: of the device file."""

    def __init__(self, simulation: Simulation, pools: Sequence[DevicePool]) -> None:
        self._simulation = simulation
        self._store = simulation.store
        self._pools = pools
        self._published: dict[str, list[str]] = {}  # node -> names of its slices
        for stored in self._store.list(RESOURCE_SLICES):
            if _PUBLISHED in stored["metadata"].get("annotations", ()):
                self._published.setdefault(stored["spec"]["nodeName"], []).append(stored["metadata"]["name"])

    def publish(self, node: JSON) -> None:
        """Bring the slices of a node to those of its pools; a change increases the generation of the pools."""
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        present = [it for it in map(self._get, self._published.get(name, ())) if it is not None]
        generation = max((it["spec"]["pool"]["generation"] for it in present), default=0)
        desired = slice_specs(self._pools, name, generation)
        unchanged = all(it["metadata"]["ownerReferences"][0]["uid"] == uid for it in present)
        if unchanged and {it["metadata"]["name"]: _without_times(it["spec"]) for it in present} == desired:
            return
        self.remove(name)
        desired = slice_specs(self._pools, name, generation + 1)
        for slice_name, spec in desired.items():
            self._store.create(RESOURCE_SLICES, self._slice(slice_name, spec, node))
        self._published[name] = list(desired)

    def remove(self, node: str) -> None:
        """Delete the slices of a node."""
        for name in self._published.pop(node, ()):
            if self._get(name) is not None:  # the garbage collector deletes them, too
                self._store.delete(RESOURCE_SLICES, "", name)

    def _get(self, name: str) -> JSON | None:
        return self._store.get(RESOURCE_SLICES, "", name)

    def _slice(self, name: str, spec: JSON, node: JSON) -> JSON:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
        return {
            "kind": "ResourceSlice",
            "apiVersion": "resource.k8s.io/v1",
            "metadata": {
                "name": name,
                "uid": new_uid(self._simulation.rng),
                "generation": 1,
                "creationTimestamp": self._simulation.wall(),
                "annotations": {_PUBLISHED: "simulated"},
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": _with_times(spec, self._simulation.wall()),
        }


def slice_specs(pools: Sequence[DevicePool], node: str, generation: int) -> dict[str, JSON]:
    """Return the spec of each slice of a node, by name. generation: of all of its pools."""
    specs: dict[str, JSON] = {}
    for pool in pools_of(pools, node):
        prefix = "-".join(filter(None, (node, pool.driver.lower(), pool.pool)))
        contents = list(_contents(pool))
        described = {"name": pool.pool_name(node), "generation": generation, "resourceSliceCount": len(contents)}
        for number, content in enumerate(contents):
            specs[f"{prefix}-{number}"] = {"driver": pool.driver, "pool": described, "nodeName": node, **content}
    return specs


def _with_times(spec: JSON, now: str) -> JSON:
    """Return the spec of a slice whose taints were added now."""
    return _with_taints(spec, lambda taint: {**taint, "timeAdded": now})


def _without_times(spec: JSON) -> JSON:
    """Return the spec of a slice as its pool describes it."""
    return _with_taints(spec, lambda taint: {name: value for name, value in taint.items() if name != "timeAdded"})


def _with_taints(spec: JSON, change: Callable[[JSON], JSON]) -> JSON:
    if "devices" not in spec:
        return spec
    devices = [
        {**device, "taints": [change(taint) for taint in device["taints"]]} if "taints" in device else device
        for device in spec["devices"]
    ]
    return {**spec, "devices": devices}


def _contents(pool: DevicePool) -> Iterator[JSON]:
    """Yield the sharedCounters, then the devices in as many parts as slices are needed."""
    if pool.shared_counters:
        yield {"sharedCounters": counter_objects(pool)}
    devices = [device for entry in pool.devices for device in device_objects(entry)]
    is_advanced = any(device.keys() & {"taints", "consumesCounters"} for device in devices)
    size = _MAX_ADVANCED_DEVICES if is_advanced else _MAX_DEVICES
    for start in range(0, len(devices), size):
        yield {"devices": devices[start : start + size]}
