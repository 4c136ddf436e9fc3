"""Pools of devices, from ResourceSlices: which devices of a pool a node can use.

A pool is local to a node if all of its slices are; then nothing else than these slices decides what the node can use of
it, and other nodes never see it. Source: structured/internal/incubating/pools_incubating.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kubeloop.kube.objects.api_types import NodeSelector
from kubeloop.kube.objects.device_types import Device, ResourceSlice
from kubeloop.kube.selectors.node_selectors import NodeSelectorMatcher
from kubeloop.kube.selectors.selectors import SelectorError
from kubeloop.kube.values.quantities import parse_quantity
from kubeloop.scheduler.devices.cluster.device_usage import PoolKey
from kubeloop.scheduler.devices.errors import AllocationError

Counters = dict[str, dict[str, int]]
"""Amounts in 10**-9 units, by counter set and counter."""


class PoolDevice:
    """A device of a slice, with what is derived from it once.

    selected: by number of a list of selectors (requests.py), whether they select the device. has_plain_capacity: a
    request for no capacity in particular can have the device whenever it is free.
    """

    __slots__ = ("consumes", "device", "driver", "has_plain_capacity", "matcher", "name", "pool", "selected", "slice")

    def __init__(self, slice_: ResourceSlice, device: Device) -> None:
        spec = slice_.spec
        self.slice = spec
        self.device = device
        self.driver, self.pool, self.name = spec.driver, spec.pool.name, device.name
        self.consumes: tuple[tuple[str, str, int], ...] = tuple(
            (consumption.counter_set, name, parse_quantity(counter.value).nano())
            for consumption in device.consumes_counters
            for name, counter in consumption.counters.items()
        )
        self.matcher = NodeMatcher(device.node_name, device.all_nodes, device.node_selector)
        self.selected: dict[int, bool] = {}
        self.has_plain_capacity = not device.allow_multiple_allocations and all(
            capacity.request_policy is None for capacity in device.capacity.values()
        )

    @property
    def per_device_node(self) -> bool:
        """True if the device, not its slice, states the nodes that can use it."""
        return bool(self.slice.per_device_node_selection)


class NodeMatcher:
    """Nodes that can use a slice or a device."""

    __slots__ = ("_all_nodes", "_name", "_selector")

    def __init__(self, name: str | None, all_nodes: bool | None, selector: NodeSelector | None) -> None:
        self._name = name or ""
        self._all_nodes = bool(all_nodes)
        self._selector = NodeSelectorMatcher(selector) if selector is not None else None

    @property
    def is_set(self) -> bool:
        return bool(self._name) or self._all_nodes or self._selector is not None

    def matches(self, node: str, labels: Mapping[str, str]) -> bool:
        """Raises SelectorError for an invalid selector."""
        if self._name:
            return node == self._name
        if self._all_nodes or self._selector is None:
            return self._all_nodes
        self._selector.check()
        return self._selector.matches(node, labels)


class Pool:
    """The devices and counters of a pool that one node can use.

    incomplete: its slices are being updated; invalid_reason: why nothing can be allocated from it, or "".
    not_targeting: devices for other nodes only. counters: of the pool, before any consumption. per_device_nodes: its
    devices state the nodes that can use them.
    """

    __slots__ = (
        "counters",
        "devices",
        "has_binding_conditions",
        "incomplete",
        "invalid_reason",
        "key",
        "not_targeting",
        "per_device_nodes",
    )

    def __init__(
        self,
        key: PoolKey,
        devices: Sequence[PoolDevice] = (),
        not_targeting: Sequence[PoolDevice] = (),
        counters: Counters | None = None,
        *,
        incomplete: bool = False,
        invalid_reason: str = "",
    ) -> None:
        self.key = key
        self.devices = devices
        self.not_targeting = not_targeting
        self.counters: Counters = counters or {}
        self.incomplete = incomplete
        self.invalid_reason = invalid_reason
        self.per_device_nodes = any(device.per_device_node for device in devices)
        self.has_binding_conditions = any(device.device.binding_conditions for device in devices)

    @property
    def is_usable(self) -> bool:
        return not self.incomplete and not self.invalid_reason

    def __str__(self) -> str:
        return "/".join(self.key)


class PoolSlice:
    """A ResourceSlice with its devices."""

    __slots__ = ("devices", "matcher", "name", "slice")

    def __init__(self, slice_: ResourceSlice) -> None:
        spec = slice_.spec
        self.slice = slice_
        self.name = slice_.metadata.name
        self.matcher = NodeMatcher(spec.node_name, spec.all_nodes, spec.node_selector)
        self.devices = [PoolDevice(slice_, device) for device in spec.devices]

    def is_relevant(self, node: str, labels: Mapping[str, str]) -> bool:
        """Raises AllocationError."""
        spec = self.slice.spec
        if spec.shared_counters:
            return True
        try:
            if self.matcher.is_set:
                return self.matcher.matches(node, labels)
            if spec.per_device_node_selection:
                return any(device.matcher.matches(node, labels) for device in self.devices)
        except SelectorError as error:
            raise AllocationError(
                f"gather pool information: failed to perform node selection for slice {self.name}: {error}"
            ) from None
        return False


class DevicePools:
    """All pools, indexed by the node that they are local to."""

    def __init__(self, *, partitionable: bool) -> None:
        """partitionable: the feature gate DRAPartitionableDevices."""
        self._partitionable = partitionable
        self._slices: dict[PoolKey, dict[str, PoolSlice]] = {}
        self._node_of: dict[PoolKey, str] = {}  # "": not local
        self._local: dict[str, set[PoolKey]] = {}
        self._shared: set[PoolKey] = set()
        self._local_pools: dict[str, list[Pool]] = {}  # by node
        self._built_pools: dict[PoolKey, dict[tuple[str, ...], Pool]] = {}  # by names of the slices for a node

    @property
    def has_shared(self) -> bool:
        """True if there are pools that are not local to one node."""
        return bool(self._shared)

    def node_of(self, key: PoolKey) -> str:
        """Return the node that a pool is local to, or ""."""
        return self._node_of.get(key, "")

    def has_pool(self, key: PoolKey) -> bool:
        return key in self._slices

    def put(self, slice_: ResourceSlice) -> None:
        """Add or replace a slice."""
        key = (slice_.spec.driver, slice_.spec.pool.name)
        self._slices.setdefault(key, {})[slice_.metadata.name] = PoolSlice(slice_)
        self._classify(key)

    def remove(self, slice_: ResourceSlice) -> None:
        key = (slice_.spec.driver, slice_.spec.pool.name)
        slices = self._slices.get(key, {})
        slices.pop(slice_.metadata.name, None)
        if not slices:
            self._slices.pop(key, None)
        self._classify(key)

    def _classify(self, key: PoolKey) -> None:
        slices = [*self._slices.get(key, {}).values()]
        old = self._node_of.pop(key, "")
        self._shared.discard(key)
        self._built_pools.pop(key, None)
        if old:
            self._local[old].discard(key)
            self._local_pools.pop(old, None)
        nodes = {slice_.slice.spec.node_name or "" for slice_ in slices}
        node = next(iter(nodes)) if len(nodes) == 1 else ""
        if node and any(slice_.slice.spec.shared_counters for slice_ in slices):
            # Slices with counters belong to the pool on every node, where the pool may be incomplete or invalid.
            pool = self._pool(key, node, {})
            node = node if pool is not None and pool.is_usable else ""
        if node:
            self._node_of[key] = node
            self._local.setdefault(node, set()).add(key)
            self._local_pools.pop(node, None)
        elif slices:
            self._shared.add(key)

    def slices(self, node: str) -> Iterator[PoolSlice]:
        """Yield the slices of all pools that may be usable on a node, of any generation."""
        for key in (*self._local.get(node, ()), *self._shared):
            yield from self._slices[key].values()

    def local_pools(self, node: str) -> list[Pool]:
        """Return the pools that are local to a node, in no order."""
        pools = self._local_pools.get(node)
        if pools is None:
            keys = self._local.get(node, ())
            pools = [pool for key in keys if (pool := self._pool(key, node, {})) is not None]
            self._local_pools[node] = pools
        return pools

    def pools(self, node: str, labels: Mapping[str, str]) -> list[Pool]:
        """Return the pools that a node can use, in the order of allocation. Raises AllocationError.

        Nodes for which the same slices are relevant share the Pool.
        """
        pools = self.local_pools(node)
        if self._shared:
            pools = pools + [pool for key in self._shared if (pool := self._pool(key, node, labels)) is not None]
        return sorted(pools, key=lambda pool: (pool.has_binding_conditions, pool.key))

    def _pool(self, key: PoolKey, node: str, labels: Mapping[str, str]) -> Pool | None:
        """Return a pool as a node can use it; None if no slice is for the node, or they are all obsolete."""
        slices = self._slices.get(key, {}).values()
        relevant = [
            slice_
            for slice_ in slices
            if (self._partitionable or not _is_partitioned(slice_)) and slice_.is_relevant(node, labels)
        ]
        if not relevant:
            return None
        generation = max(slice_.slice.spec.pool.generation for slice_ in relevant)
        relevant = [slice_ for slice_ in relevant if slice_.slice.spec.pool.generation == generation]
        others: list[PoolSlice] = []
        count = relevant[0].slice.spec.pool.resource_slice_count
        if len(relevant) != count:
            if any(slice_.slice.spec.pool.generation > generation for slice_ in slices):
                return None
            current = [slice_ for slice_ in slices if slice_.slice.spec.pool.generation == generation]
            if len(current) != count:
                return Pool(key, incomplete=True)
            names = {slice_.name for slice_ in relevant}
            others = [slice_ for slice_ in current if slice_.name not in names]
        relevant.sort(key=lambda slice_: slice_.name)
        by_slices = self._built_pools.setdefault(key, {})
        view = tuple(slice_.name for slice_ in relevant)
        if view not in by_slices:
            by_slices[view] = self._built(key, relevant, others)
        return by_slices[view]

    def _built(self, key: PoolKey, slices: Sequence[PoolSlice], others: Sequence[PoolSlice]) -> Pool:
        with_devices = [slice_ for slice_ in slices if not slice_.slice.spec.shared_counters]
        devices = [device for slice_ in with_devices for device in slice_.devices]
        if duplicate := _first_duplicate(device.name for device in devices):
            return Pool(key, invalid_reason=f"duplicate device name {duplicate}")
        if not self._partitionable:
            return Pool(key, devices)
        counters: Counters = {}
        for slice_ in slices:
            for counter_set in slice_.slice.spec.shared_counters:
                if counter_set.name in counters:
                    return Pool(key, invalid_reason=f"duplicate counter set name {counter_set.name}")
                counters[counter_set.name] = {
                    name: parse_quantity(counter.value).nano() for name, counter in counter_set.counters.items()
                }
        not_targeting = [device for slice_ in others for device in slice_.devices]
        for device in (*devices, *not_targeting):
            for counter_set_name, name, _ in device.consumes:
                if counter_set_name not in counters:
                    return Pool(key, invalid_reason=f"counter set {counter_set_name} not found")
                if name not in counters[counter_set_name]:
                    return Pool(key, invalid_reason=f"counter {name} not found in counter set {counter_set_name}")
        return Pool(key, devices, not_targeting, counters)


def _is_partitioned(slice_: PoolSlice) -> bool:
    spec = slice_.slice.spec
    return spec.per_device_node_selection is not None or bool(spec.shared_counters)


def _first_duplicate(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""
