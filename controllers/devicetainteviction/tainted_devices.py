"""Devices of all pools with their NoExecute taints, from the newest generation of ResourceSlices.

Source: pool in v1.36 pkg/controller/devicetainteviction/device_taint_eviction.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.kube.objects.device_types import Device, DeviceTaint, ResourceSlice
from kubeloop.kube.objects.taints_and_tolerations import NO_EXECUTE

PoolKey = tuple[str, str]
"""Driver and name of a pool."""

DeviceKey = tuple[str, str, str]
"""Driver, pool and name of a device."""

Taints = dict[str, tuple[DeviceTaint, ...]]
"""NoExecute taints by name of the device; devices without are missing."""


class TaintedDevices:
    """ResourceSlices by pool, and the taints of their devices."""

    def __init__(self) -> None:
        self._slices: dict[PoolKey, dict[str, ResourceSlice]] = {}
        self._taints: dict[PoolKey, Taints] = {}  # pools without taints are missing

    def taints(self, driver: str, pool: str, device: str) -> tuple[DeviceTaint, ...]:
        """Return the NoExecute taints of a device."""
        return self._taints.get((driver, pool), {}).get(device, ())

    def devices(self) -> Iterator[DeviceKey]:
        """Yield all published devices."""
        for (driver, pool), slices in self._slices.items():
            for device in _current_devices(slices):
                yield driver, pool, device.name

    def change(self, old: ResourceSlice | None, new: ResourceSlice | None) -> set[DeviceKey]:
        """Apply the addition, change or deletion of a slice. Returns the devices whose taints have changed."""
        pools = {pool_key(slice_): None for slice_ in (old, new) if slice_ is not None}
        before = {key: self._taints.get(key, {}) for key in pools}
        if old is not None:
            slices = self._slices.get(pool_key(old), {})
            slices.pop(old.metadata.name, None)
            if not slices:
                self._slices.pop(pool_key(old), None)
        if new is not None:
            self._slices.setdefault(pool_key(new), {})[new.metadata.name] = new
        changed: set[DeviceKey] = set()
        for key, old_taints in before.items():
            taints = _no_execute_taints(self._slices.get(key, {}))
            if taints:
                self._taints[key] = taints
            else:
                self._taints.pop(key, None)
            for device in old_taints.keys() | taints.keys():
                if old_taints.get(device) != taints.get(device):
                    changed.add((*key, device))
        return changed


def pool_key(slice_: ResourceSlice) -> PoolKey:
    return slice_.spec.driver, slice_.spec.pool.name


def _current_devices(slices: dict[str, ResourceSlice]) -> Iterator[Device]:
    """Yield the devices of the newest generation of a pool."""
    generation = max((slice_.spec.pool.generation for slice_ in slices.values()), default=0)
    for slice_ in slices.values():
        if slice_.spec.pool.generation == generation:
            yield from slice_.spec.devices


def _no_execute_taints(slices: dict[str, ResourceSlice]) -> Taints:
    taints: Taints = {}
    for device in _current_devices(slices):
        if device.taints:
            evicting = tuple(taint for taint in device.taints if taint.effect == NO_EXECUTE)
            if evicting:
                taints[device.name] = (*taints.get(device.name, ()), *evicting)
    return taints
