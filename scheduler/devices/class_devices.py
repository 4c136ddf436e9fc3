"""Number of devices of a DeviceClass on a node, and of those in use, for the scores of extended resources.

Source: calculateDRAResourceTotals of plugins/noderesources/resource_allocation.go, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubeloop.kube.objects.device_types import DeviceClass
from kubeloop.kube.selectors.device_selectors import DeviceSelectorError
from kubeloop.kube.selectors.selectors import SelectorError
from kubeloop.scheduler.devices.cluster.device_pools import DevicePools, PoolDevice
from kubeloop.scheduler.devices.cluster.device_usage import DeviceUsage
from kubeloop.scheduler.devices.requests import SelectorLists, class_expressions
from kubeloop.scheduler.devices.selectors import DeviceSelectors


class ClassDevices:
    """Counts the devices of classes."""

    def __init__(
        self, pools: DevicePools, usage: DeviceUsage, selectors: DeviceSelectors, selector_lists: SelectorLists
    ) -> None:
        self._pools, self._usage = pools, usage
        self._selectors, self._selector_lists = selectors, selector_lists

    def count(self, device_class: DeviceClass, node: str, labels: Mapping[str, str]) -> tuple[int, int]:
        """Return (devices of the class on a node, those in use). As in kube-scheduler, (0, 0) if a selector fails."""
        expressions = class_expressions(device_class)
        number = self._selector_lists.number(expressions, ())
        total = in_use = 0
        try:
            for device in self._devices(node, labels):
                selected = device.selected.get(number)
                if selected is None:
                    selected = device.selected[number] = all(
                        self._selectors.matches(expression, device.driver, device.device) for expression in expressions
                    )
                if selected:
                    total += 1
                    in_use += self._usage.pool((device.driver, device.pool)).is_allocated(device.name)
        except (SelectorError, DeviceSelectorError):
            return 0, 0
        return total, in_use

    def _devices(self, node: str, labels: Mapping[str, str]) -> Iterator[PoolDevice]:
        for slice_ in self._pools.slices(node):
            if slice_.slice.spec.per_device_node_selection:
                yield from [device for device in slice_.devices if device.matcher.matches(node, labels)]
            elif slice_.matcher.matches(node, labels):
                yield from slice_.devices
