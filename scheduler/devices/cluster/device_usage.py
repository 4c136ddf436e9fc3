"""Device usage: the devices that claims have allocated, and the capacity that they consume of shared devices."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from kubeloop.kube.objects.device_types import AllocationResult
from kubeloop.kube.values.quantities import parse_quantity
from kubeloop.scheduler.devices.capacity import Amounts

PoolKey = tuple[str, str]
"""(driver, pool)"""

_NO_AMOUNTS: Amounts = {}
_MAX_CHANGES = 4096


class PoolUsage:
    """Usage of one pool, by name of the device. Access by administrators does not count."""

    __slots__ = ("capacity", "dedicated", "shares")

    def __init__(self) -> None:
        self.dedicated: Counter[str] = Counter()  # number of claims that have the device alone; no zeros
        self.shares: Counter[str] = Counter()  # number of shares; no zeros
        self.capacity: dict[str, Amounts] = {}  # consumed by all shares

    def copy(self) -> PoolUsage:
        copy = PoolUsage()
        copy.dedicated = self.dedicated.copy()
        copy.shares = self.shares.copy()
        copy.capacity = {device: {**amounts} for device, amounts in self.capacity.items()}
        return copy

    def is_allocated(self, device: str) -> bool:
        return device in self.dedicated or device in self.shares

    def consumed(self, device: str) -> Amounts:
        return self.capacity.get(device, _NO_AMOUNTS)

    def add(self, device: str, amounts: Amounts | None, sign: int) -> None:
        """Add or remove one allocation. amounts: what a share consumes; None for a dedicated device."""
        counts = self.dedicated if amounts is None else self.shares
        counts[device] += sign
        if not counts[device]:
            del counts[device]
        if amounts:
            total = self.capacity.setdefault(device, {})
            for name, amount in amounts.items():
                change = amount if sign > 0 else -amount
                total[name] = total[name] + change if name in total else change
            if not any(amount.sign for amount in total.values()):
                del self.capacity[device]


class DeviceUsage:
    """Usage of all pools, and the nodes on which something changed.

    version: number of changes so far.
    """

    def __init__(self, node_of: Callable[[PoolKey], str], *, consumable_capacity: bool) -> None:
        """node_of: the node that a pool is local to, or "". consumable_capacity: the feature gate
        DRAConsumableCapacity; without it, a share counts as the device."""
        self._node_of = node_of
        self._consumable_capacity = consumable_capacity
        self._pools: dict[PoolKey, PoolUsage] = {}
        self._allocations: dict[str, AllocationResult] = {}  # by UID of the claim
        self.version = 0
        self._changes: deque[str] = deque(maxlen=_MAX_CHANGES)

    def pool(self, key: PoolKey) -> PoolUsage:
        return self._pools.get(key, _UNUSED)

    def set_allocation(self, uid: str, allocation: AllocationResult | None) -> None:
        """Replace the allocation of a claim."""
        old = self._allocations.get(uid)
        if old is allocation or old == allocation:
            return
        if old is not None:
            del self._allocations[uid]
            self._count(old, -1)
        if allocation is not None:
            self._allocations[uid] = allocation
            self._count(allocation, 1)

    def _count(self, allocation: AllocationResult, sign: int) -> None:
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            key = (result.driver, result.pool)
            usage = self._pools.setdefault(key, PoolUsage())
            amounts: Amounts | None = None
            if self._consumable_capacity and result.share_id is not None:
                amounts = {name: parse_quantity(amount) for name, amount in result.consumed_capacity.items()}
            usage.add(result.device, amounts, sign)
            self.changed(self._node_of(key))

    def changed(self, node: str) -> None:
        """Record a change of usage or slices that concerns one node; "": any node."""
        self.version += 1
        self._changes.append(node)

    def changed_since(self, version: int) -> set[str] | None:
        """Return the nodes with changes after `version`; None: all."""
        missed = self.version - version
        if missed > len(self._changes):
            return None
        nodes = {self._changes[-back] for back in range(1, missed + 1)}
        return None if "" in nodes else nodes


_UNUSED = PoolUsage()
