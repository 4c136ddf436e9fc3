"""Requests of the claims of one pod that must be allocated, checked and ready for the search.

Source: Allocate and validateDeviceRequest of structured/internal/incubating/allocator_incubating.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.device_types import (
    CapacityRequirements,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from kubeloop.scheduler.devices.errors import AllocationError

MAX_RESULTS = 32
"""Maximum number of devices of one claim."""


class DeviceFeatures(msgspec.Struct, frozen=True):
    """Feature gates that change allocation; without a gate, claims and devices that need it are not allocated."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    list_attributes: bool = False
    node_allocatable: bool = False


def device_features(gates: FeatureGates) -> DeviceFeatures:
    return DeviceFeatures(
        admin_access=gates.enabled("DRAAdminAccess"),
        prioritized_list=gates.enabled("DRAPrioritizedList"),
        partitionable_devices=gates.enabled("DRAPartitionableDevices"),
        device_taints=gates.enabled("DRADeviceTaints"),
        binding_conditions=gates.enabled("DRADeviceBindingConditions")
        and gates.enabled("DRAResourceClaimDeviceStatus"),
        consumable_capacity=gates.enabled("DRAConsumableCapacity"),
        list_attributes=gates.enabled("DRAListTypeAttributes"),
        node_allocatable=gates.enabled("DRANodeAllocatableResources"),
    )


class RequestAlternative:
    """A request, or an alternative of one. parent: name of the request that it is an alternative of, or "".

    selectors: number of the list of its class's selectors and its own, in SelectorLists.
    """

    __slots__ = (
        "admin_access",
        "capacity",
        "count",
        "device_class",
        "name",
        "own_selectors",
        "parent",
        "selectors",
        "takes_all",
        "tolerations",
    )

    def __init__(
        self, name: str, parent: str, spec: ExactDeviceRequest | DeviceSubRequest, device_class: DeviceClass
    ) -> None:
        self.name = name
        self.parent = parent
        self.device_class = device_class
        self.takes_all = spec.allocation_mode == "All"
        self.count = spec.count
        self.admin_access = isinstance(spec, ExactDeviceRequest) and bool(spec.admin_access)
        self.tolerations: tuple[DeviceToleration, ...] = spec.tolerations
        self.capacity: CapacityRequirements | None = spec.capacity
        self.own_selectors = _expressions(spec.selectors)
        self.selectors = 0

    @property
    def full_name(self) -> str:
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def base_name(self) -> str:
        return self.parent or self.name

    @property
    def subrequest(self) -> str:
        return self.name if self.parent else ""


class ClaimRequests(msgspec.Struct, frozen=True):
    """requests: the alternatives of each request, one for an exact request."""

    claim: ResourceClaim
    requests: tuple[tuple[RequestAlternative, ...], ...]


class SelectorLists:
    """Numbers of different lists of selectors: (of the class, of the request)."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}

    def number(self, of_class: tuple[str, ...], of_request: tuple[str, ...]) -> int:
        return self._numbers.setdefault((of_class, of_request), len(self._numbers))


def claim_requests(
    claim: ResourceClaim,
    device_class: Callable[[str], DeviceClass | None],
    features: DeviceFeatures,
    selector_lists: SelectorLists,
) -> ClaimRequests:
    """Return the requests of a claim. Raises AllocationError for an invalid or unsupported one."""
    parsed: list[tuple[RequestAlternative, ...]] = []
    for request in claim.spec.devices.requests:
        _check_features(claim, request, features)
        specs: Sequence[tuple[str, str, ExactDeviceRequest | DeviceSubRequest]]
        if request.first_available:
            specs = [(alternative.name, request.name, alternative) for alternative in request.first_available]
        elif request.exactly is not None:
            specs = [(request.name, "", request.exactly)]
        else:
            raise AllocationError(f"resource claim {claim.key}, request {request.name}: unknown request type")
        alternatives = []
        for name, parent, spec in specs:
            _check_spec(claim, name, spec, features)
            class_ = device_class(spec.device_class_name)
            if class_ is None:
                raise AllocationError(
                    f"claim {claim.key}, request {name}: could not retrieve device class {spec.device_class_name}: "
                    f'deviceclass.resource.k8s.io "{spec.device_class_name}" not found'
                )
            if spec.allocation_mode not in ("ExactCount", "All"):
                raise AllocationError(
                    f"claim {claim.key}, request {name}: unsupported count mode {spec.allocation_mode}"
                )
            alternative = RequestAlternative(name, parent, spec, class_)
            alternative.selectors = selector_lists.number(class_expressions(class_), alternative.own_selectors)
            alternatives.append(alternative)
        parsed.append(tuple(alternatives))
    return ClaimRequests(claim, tuple(parsed))


def _check_features(claim: ResourceClaim, request: DeviceRequest, features: DeviceFeatures) -> None:
    if request.first_available and not features.prioritized_list:
        disabled = "has subrequests, but the DRAPrioritizedList feature is disabled"
        raise AllocationError(f"claim {claim.key}, request {request.name}: {disabled}")
    if not features.consumable_capacity:
        disabled = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
        if request.exactly is not None and request.exactly.capacity is not None:
            raise AllocationError(f"claim {claim.key}, request {request.name}: {disabled}")
        for alternative in request.first_available:
            if alternative.capacity is not None:
                raise AllocationError(f"claim {claim.key}, subrequest {alternative.name}: {disabled}")


def _check_spec(
    claim: ResourceClaim, name: str, spec: ExactDeviceRequest | DeviceSubRequest, features: DeviceFeatures
) -> None:
    where = f"claim {claim.key}, request {name}"
    for index, selector in enumerate(spec.selectors):
        if selector.cel is None:
            raise AllocationError(f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)")
    if not features.admin_access and isinstance(spec, ExactDeviceRequest) and spec.admin_access is not None:
        raise AllocationError(f"{where}: admin access is requested, but the feature is disabled")
    if not spec.device_class_name:
        raise AllocationError(f"{where}: missing device class name (unsupported request type?)")


def _expressions(selectors: Sequence[DeviceSelector]) -> tuple[str, ...]:
    return tuple(selector.cel.expression for selector in selectors if selector.cel is not None)


def class_expressions(device_class: DeviceClass) -> tuple[str, ...]:
    return _expressions(device_class.spec.selectors)
