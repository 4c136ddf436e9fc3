"""Search for devices on one node: the first combination, in the order of pools, slices and devices, that satisfies all
requests and constraints of a pod's claims.

Requests are satisfied one device at a time; if a later device cannot be found, the previous one is replaced by the next
candidate (backtracking). Source: structured/internal/incubating/allocator_incubating.go of v1.36.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from kubeloop.kube.objects.device_taints import tolerates_device_taint
from kubeloop.kube.objects.device_types import DeviceToleration
from kubeloop.kube.selectors.device_selectors import DeviceSelectorError
from kubeloop.scheduler.devices.capacity import Amounts, consumed_capacity, has_capacity
from kubeloop.scheduler.devices.cluster.device_pools import Pool, PoolDevice
from kubeloop.scheduler.devices.cluster.device_usage import PoolKey, PoolUsage
from kubeloop.scheduler.devices.constraints import Constraint, new_constraint
from kubeloop.scheduler.devices.errors import AllocationError, AllocationTimeout, InvalidPools
from kubeloop.scheduler.devices.requests import MAX_RESULTS, ClaimRequests, DeviceFeatures, RequestAlternative
from kubeloop.scheduler.devices.selectors import DeviceSelectors

_STEPS_PER_CLOCK_CHECK = 64
_NEVER = 1 << 63

_CounterKey = tuple[str, str]  # counter set, counter


class AllocatedDevice(msgspec.Struct, frozen=True):
    """A device for a request. amounts: consumed capacity of a device with multiple allocations, else None."""

    request: RequestAlternative
    device: PoolDevice
    amounts: Amounts | None


class NodeAllocation(msgspec.Struct, frozen=True):
    """Devices of each claim; chosen: (claim, request) -> number of the alternative."""

    devices: tuple[tuple[AllocatedDevice, ...], ...]
    chosen: Mapping[tuple[int, int], int]


class SearchSettings(msgspec.Struct, frozen=True):
    """usage_of: usage of a pool. now_ns: the clock of timeout_seconds, the limit of one search; None: no limit."""

    features: DeviceFeatures
    selectors: DeviceSelectors
    usage_of: Callable[[PoolKey], PoolUsage]
    now_ns: Callable[[], int]
    timeout_seconds: float | None


class _TooManyResults(Exception):
    """The claim would have more than MAX_RESULTS devices."""


class NodeSearch:
    """One search. steps: number of calls so far, a measure of its size.

    in_thread: it runs in a thread, and reads a copy of the usage; all else that it reads does not change.
    """

    def __init__(
        self,
        claims: Sequence[ClaimRequests],
        pools: Sequence[Pool],
        node: str,
        labels: Mapping[str, str],
        settings: SearchSettings,
        *,
        limit_seconds: float | None = None,
        in_thread: bool = False,
    ) -> None:
        """limit_seconds: raise AllocationTimeout after this time, even if it is less than that of the settings."""
        self.steps = 0
        limits = [seconds for seconds in (settings.timeout_seconds, limit_seconds) if seconds is not None]
        self._end_ns = settings.now_ns() + int(min(limits) * 1e9) if limits else _NEVER
        self._claims = claims
        self._pools = pools
        self._node, self._labels = node, labels
        self._settings = settings
        self._features = settings.features
        self._candidates = [device for pool in pools if pool.is_usable for device in pool.devices]
        self._pool_of = {pool.key: pool for pool in pools}
        self._usage = {pool.key: settings.usage_of(pool.key) for pool in pools}
        self._in_thread = in_thread
        if in_thread:
            self._usage = {key: usage.copy() for key, usage in self._usage.items()}
        self._selectable: dict[tuple[RequestAlternative, PoolDevice], bool] = {}
        self._all_devices: dict[RequestAlternative, list[PoolDevice]] = {}
        self._constraints: list[list[Constraint]] = []
        self._results: list[list[AllocatedDevice]] = [[] for _ in claims]
        self._chosen: dict[tuple[int, int], int] = {}
        self._allocating: dict[PoolDevice, set[int]] = {}  # claims, by number
        self._allocating_capacity: dict[PoolDevice, Amounts] = {}
        self._available: dict[PoolKey, dict[_CounterKey, int]] = {}
        self._consumed: dict[PoolKey, dict[_CounterKey, int]] = {}

    def stop(self) -> None:
        """Let the search raise AllocationTimeout soon."""
        self._end_ns = 0

    def run(self) -> NodeAllocation | None:
        """Return the allocation, or None if there is none.

        Raises AllocationError, which ends the attempt; InvalidPools; AllocationTimeout.
        """
        for claim in self._claims:
            minimum = sum(
                min(self._number_of_devices(claim, alternative) for alternative in alternatives)
                for alternatives in claim.requests
            )
            if minimum > MAX_RESULTS:
                raise AllocationError(
                    f"claim {claim.claim.key}: number of requested devices {minimum} exceeds the claim limit of "
                    f"{MAX_RESULTS}"
                )
            constraints = claim.claim.spec.devices.constraints
            self._constraints.append(
                [
                    new_constraint(constraint, claim.claim.key, index, lists=self._features.list_attributes)
                    for index, constraint in enumerate(constraints)
                ]
            )
        try:
            done = self._next_request(0, 0)
        except _TooManyResults:
            raise AllocationError("allocation max size exceeded") from None
        if done:
            return NodeAllocation(tuple(tuple(devices) for devices in self._results), dict(self._chosen))
        if any(pool.invalid_reason for pool in self._pools):
            raise InvalidPools
        return None

    def _number_of_devices(self, claim: ClaimRequests, request: RequestAlternative) -> int:
        if not request.takes_all:
            return request.count
        devices: list[PoolDevice] = []
        for pool in self._pools:
            if not pool.is_usable:
                state = "being updated" if pool.incomplete else "invalid"
                raise AllocationError(
                    f"claim {claim.claim.key}, request {request.name}: asks for all devices, but resource pool {pool} "
                    f"is currently {state}"
                )
            devices += [
                device
                for device in pool.devices
                if self._is_selectable(claim, request, device) and self._has_capacity(request, device)
            ]
        self._all_devices[request] = devices
        return len(devices)

    # --- backtracking ------------------------------------------------------------------------------------------------

    def _count_step(self) -> None:
        self.steps += 1
        if self.steps % _STEPS_PER_CLOCK_CHECK == 0:
            if self._in_thread:
                time.sleep(0)  # the event loop waits for the interpreter lock
            if self._settings.now_ns() > self._end_ns:
                raise AllocationTimeout(self._node)

    def _next_request(self, claim: int, request: int) -> bool:
        """Allocate this request and all after it; False if that is impossible. Raises _TooManyResults."""
        self._count_step()
        if claim >= len(self._claims):
            return True
        requests = self._claims[claim].requests
        if request >= len(requests):
            try:
                return self._next_request(claim + 1, 0)
            except _TooManyResults:
                return False
        alternatives = requests[request]
        if not alternatives[0].parent:
            return self._next_device((claim, request, 0), 0, 0, counted=True)
        too_many = True
        for number in range(len(alternatives)):
            try:
                done = self._next_device((claim, request, number), 0, 0)
            except _TooManyResults:
                continue
            too_many = False
            if done:
                self._chosen[claim, request] = number
                return True
        if too_many:
            raise _TooManyResults
        return False

    def _next_device(self, at: tuple[int, int, int], allocated: int, start: int, *, counted: bool = False) -> bool:
        """Allocate the remaining devices of a request, and all requests after it.

        at: claim, request and alternative. allocated: number of its devices so far. start: first candidate. counted:
        the step is counted already.
        """
        if not counted:
            self._count_step()
        claim, number, alternative = at
        request = self._claims[claim].requests[number][alternative]
        all_devices = self._all_devices[request] if request.takes_all else None
        if all_devices is not None and not all_devices:
            return False
        count = request.count if all_devices is None else len(all_devices)
        if allocated >= count:
            return self._next_request(claim, number + 1)
        if len(self._results[claim]) + count - allocated > MAX_RESULTS:
            raise _TooManyResults
        if all_devices is not None:
            device = all_devices[allocated]
            if not self._allocate(claim, request, device, must=True):
                return False
            done = False
            try:
                done = self._next_device(at, allocated + 1, 0)
            finally:
                if not done:
                    self._release(claim, request, device)
            return done
        for index in range(start, len(self._candidates)):
            device = self._candidates[index]
            if request.admin_access:
                if claim in self._allocating.get(device, ()):
                    continue
            elif self._is_in_use(device):
                continue
            if not self._is_selectable(self._claims[claim], request, device):
                continue
            if not self._has_capacity(request, device) or not self._allocate(claim, request, device):
                continue
            done = False
            try:
                done = self._next_device(at, allocated + 1, index + 1)
            finally:
                if not done:
                    self._release(claim, request, device)
            if done:
                return True
        return False

    # --- one device --------------------------------------------------------------------------------------------------

    def _is_in_use(self, device: PoolDevice) -> bool:
        return device.name in self._usage[device.driver, device.pool].dedicated or bool(self._allocating.get(device))

    def _is_selectable(self, claim: ClaimRequests, request: RequestAlternative, device: PoolDevice) -> bool:
        key = (request, device)
        selectable = self._selectable.get(key)
        if selectable is None:
            if request.selectors not in device.selected:  # an expression is evaluated
                self._count_step()
            selectable = self._selectable[key] = (
                (self._features.binding_conditions or not device.device.binding_conditions)
                and is_selected(self._settings.selectors, claim, request, device)
                and self._is_for_node(device)
            )
        return selectable

    def _is_for_node(self, device: PoolDevice) -> bool:
        return not device.per_device_node or device.matcher.matches(self._node, self._labels)

    def _has_capacity(self, request: RequestAlternative, device: PoolDevice) -> bool:
        if not self._features.consumable_capacity or (request.capacity is None and device.has_plain_capacity):
            return True
        return has_capacity(
            device.device,
            request.capacity,
            self._usage[device.driver, device.pool].consumed(device.name),
            self._allocating_capacity.get(device, {}),
        )

    def _allocate(self, claim: int, request: RequestAlternative, device: PoolDevice, *, must: bool = False) -> bool:
        """Add a device to the result; False if it cannot be.

        must: a violated constraint raises AllocationError. As in kube-scheduler, counters stay consumed if a taint or a
        constraint then rejects the device.
        """
        shared = self._features.consumable_capacity and bool(device.device.allow_multiple_allocations)
        if request.admin_access:
            if not shared and claim in self._allocating.get(device, ()):
                return False
        elif self._is_in_use(device):
            return False
        if device.consumes:
            if not self._features.partitionable_devices:
                return False
            if not (shared and self._is_capacity_in_use(device)) and not self._consume_counters(device):
                return False
        if self._features.device_taints and device.device.taints and has_untolerated_taint(device, request.tolerations):
            return False
        constraints = self._constraints[claim]
        for index, constraint in enumerate(constraints):
            if constraint.add(request.base_name, request.subrequest, device.driver, device.device):
                continue
            if must:
                raise AllocationError(
                    f"claim {self._claims[claim].claim.key}, request {request.name}: cannot add device "
                    f"{device.driver}/{device.pool}/{device.name} because a claim constraint would not be satisfied"
                )
            for added in constraints[:index]:
                added.remove(request.base_name, request.subrequest)
            return False
        amounts: Amounts | None = None
        if shared:
            if not self._has_capacity(request, device):  # another request of an "All" claim consumed it
                return False
            amounts = consumed_capacity(device.device, request.capacity)
            allocating = self._allocating_capacity.setdefault(device, {})
            for name, amount in amounts.items():
                allocating[name] = allocating[name] + amount if name in allocating else amount
        else:
            self._allocating.setdefault(device, set()).add(claim)
        self._results[claim].append(AllocatedDevice(request, device, amounts))
        return True

    def _release(self, claim: int, request: RequestAlternative, device: PoolDevice) -> None:
        """Undo the last _allocate."""
        for constraint in self._constraints[claim]:
            constraint.remove(request.base_name, request.subrequest)
        amounts = self._results[claim].pop().amounts
        if amounts is not None:
            allocating = self._allocating_capacity[device]
            for name, amount in amounts.items():
                allocating[name] = allocating[name] - amount
            if not any(amount.sign for amount in allocating.values()):
                del self._allocating_capacity[device]
            return
        self._allocating[device].discard(claim)
        if device.consumes:
            self._return_counters(device)

    # --- counters ----------------------------------------------------------------------------------------------------

    def _is_capacity_in_use(self, device: PoolDevice) -> bool:
        usage = self._usage[device.driver, device.pool]
        return device.name in usage.capacity or device in self._allocating_capacity

    def _consume_counters(self, device: PoolDevice) -> bool:
        """Consume what the device needs of its pool's counters; False if not enough is left."""
        key = (device.driver, device.pool)
        available = self._available.get(key)
        if available is None:
            available = self._available[key] = self._available_counters(key)
        consumed = self._consumed.setdefault(key, {})
        for counter_set, name, amount in device.consumes:
            consumed[counter_set, name] = consumed.get((counter_set, name), 0) + amount
        if any(amount < consumed.get(counter, 0) for counter, amount in available.items()):
            self._return_counters(device)
            return False
        return True

    def _available_counters(self, key: PoolKey) -> dict[_CounterKey, int]:
        pool, usage = self._pool_of[key], self._usage[key]
        available = {
            (counter_set, name): amount
            for counter_set, counters in pool.counters.items()
            for name, amount in counters.items()
        }
        for device in (*pool.devices, *pool.not_targeting):
            if device.consumes and usage.is_allocated(device.name):
                for counter_set, name, amount in device.consumes:
                    available[counter_set, name] -= amount
        return available

    def _return_counters(self, device: PoolDevice) -> None:
        consumed = self._consumed[device.driver, device.pool]
        for counter_set, name, amount in device.consumes:
            consumed[counter_set, name] -= amount


def is_selected(
    selectors: DeviceSelectors, claim: ClaimRequests, request: RequestAlternative, device: PoolDevice
) -> bool:
    """Return True if the selectors of the class and of the request select a device. Raises AllocationError."""
    selected = device.selected.get(request.selectors)
    if selected is None:
        selected = device.selected[request.selectors] = rejecting_selector(selectors, claim, request, device) is None
    return selected


def rejecting_selector(
    selectors: DeviceSelectors, claim: ClaimRequests, request: RequestAlternative, device: PoolDevice
) -> str | None:
    """Return the first selector that rejects a device, with its owner, or None. Raises AllocationError."""
    device_class = request.device_class
    for owner, expressions in (
        (f"class {device_class.metadata.name}", tuple(s.cel.expression for s in device_class.spec.selectors if s.cel)),
        (f"claim {claim.claim.key}", request.own_selectors),
    ):
        for index, expression in enumerate(expressions):
            try:
                if not selectors.matches(expression, device.driver, device.device):
                    return f"{owner}: {expression}"
            except DeviceSelectorError as error:
                raise AllocationError(f"{owner}: selector #{index}: {error}") from None
    return None


def has_untolerated_taint(device: PoolDevice, tolerations: Sequence[DeviceToleration]) -> bool:
    """Return True if a taint of the device prevents its allocation. Other effects, like None, prevent nothing."""
    return any(
        taint.effect in ("NoSchedule", "NoExecute")
        and not any(tolerates_device_taint(entry, taint) for entry in tolerations)
        for taint in device.device.taints
    )
