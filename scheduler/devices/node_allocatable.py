"""Resources of the node, such as CPU and memory, that devices stand for: what a pod takes of them by its claims.

With the feature gate DRANodeAllocatableResources. Source: plugins/dynamicresources/nodeallocatabledynamicresources.go
of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kubeloop.kube.objects.api_types import NodeAllocatableResourceClaimStatus, Pod
from kubeloop.kube.objects.api_types import Quantity as Amount
from kubeloop.kube.objects.device_types import NodeAllocatableResourceMapping, ResourceClaim
from kubeloop.kube.objects.pod_claims import claim_name
from kubeloop.kube.values.quantities import Quantity, parse_quantity
from kubeloop.scheduler.cache.node_info import NodeInfo
from kubeloop.scheduler.cache.pod_requests import RequestRules, pod_requests
from kubeloop.scheduler.devices.allocator import AllocatedDevice
from kubeloop.scheduler.devices.errors import AllocationError

Statuses = tuple[NodeAllocatableResourceClaimStatus, ...]


class NodeAllocatableRejection(Exception):
    """Why a node cannot provide the resources. is_resolvable: it could without other pods."""

    def __init__(self, *reasons: str, is_resolvable: bool = False) -> None:
        super().__init__(*reasons)
        self.reasons = reasons
        self.is_resolvable = is_resolvable


def check_sharing(pod: Pod, claim: ResourceClaim, node: NodeInfo) -> None:
    """Raise NodeAllocatableRejection if another pod on the node takes resources by an allocated claim."""
    name = claim.metadata.name
    users = {
        other.uid
        for other in node.pods.values()
        if other.pod.metadata.namespace == pod.metadata.namespace
        and any(status.resource_claim_name == name for status in _statuses(other.pod))
    }
    if len(users) > 1:
        raise NodeAllocatableRejection(f"node allocatable resource claim {name} shared by multiple pods")
    if users and pod.metadata.uid not in users:
        raise NodeAllocatableRejection(f"node allocatable resource claim {name} is already used by another pod")


def claim_statuses(
    pod: Pod,
    allocations: Iterable[tuple[ResourceClaim, Sequence[AllocatedDevice]]],
    node: NodeInfo,
    rules: RequestRules,
) -> Statuses:
    """Return the resources that each claim takes of a node.

    Raises NodeAllocatableRejection if the node does not have them, and AllocationError for an invalid device.
    """
    statuses = []
    for claim, devices in sorted(allocations, key=lambda entry: entry[0].metadata.name):
        amounts = _amounts(claim, devices)
        if amounts is None:
            continue
        name = claim.metadata.name
        containers = _containers(pod, name)
        if not containers:
            raise NodeAllocatableRejection(
                f"claim {name}: node-allocatable resource claim not referenced by any container within the pod"
            )
        resources: dict[str, Amount] = {resource: amount.canonical() for resource, amount in amounts.items()}
        statuses.append(
            NodeAllocatableResourceClaimStatus(
                resource_claim_name=name, containers=tuple(containers), resources=resources
            )
        )
    if statuses:
        _check_fit(pod, tuple(statuses), node, rules)
    return tuple(statuses)


def _statuses(pod: Pod) -> Statuses:
    return pod.status.node_allocatable_resource_claim_statuses


def _amounts(claim: ResourceClaim, devices: Sequence[AllocatedDevice]) -> dict[str, Quantity] | None:
    """Return the sum over the devices; None if none of them stands for resources."""
    amounts: dict[str, Quantity] = {}
    for allocated in devices:
        for resource, mapping in allocated.device.device.node_allocatable_resource_mappings.items():
            amount = _amount(claim, allocated, resource, mapping)
            if amount is not None:
                amounts[resource] = amounts[resource] + amount if resource in amounts else amount
    return amounts or None


def _amount(
    claim: ResourceClaim, allocated: AllocatedDevice, resource: str, mapping: NodeAllocatableResourceMapping
) -> Quantity | None:
    """Return what one device takes; None if the allocation does not consume the capacity of the mapping."""
    multiplier = None if mapping.allocation_multiplier is None else parse_quantity(mapping.allocation_multiplier)
    if not mapping.capacity_key:
        return parse_quantity(0) if multiplier is None else multiplier
    if allocated.amounts is None:
        raise AllocationError(
            f"claim {claim.key}, device {allocated.device.name}: ConsumedCapacity is nil, but Capacity key "
            f"'{mapping.capacity_key}' is set in NodeAllocatableResourceMappings for resource {resource}"
        )
    consumed = allocated.amounts.get(mapping.capacity_key)
    return consumed if consumed is None or multiplier is None else _product(consumed, multiplier)


def _product(one: Quantity, other: Quantity) -> Quantity:
    (_, unscaled, exponent, _), (_, factor, shift, _) = one.parts, other.parts
    return Quantity(unscaled * factor, exponent + shift, one.format)


def _containers(pod: Pod, claim: str) -> list[str]:
    """Return the containers that use a claim, once for each use."""
    entries = {entry.name for entry in pod.spec.resource_claims if claim_name(pod, entry) == claim}
    return [
        container.name
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for used in container.resources.claims
        if used.name in entries
    ]


def _check_fit(pod: Pod, statuses: Statuses, node: NodeInfo, rules: RequestRules) -> None:
    status = msgspec.structs.replace(pod.status, node_allocatable_resource_claim_statuses=statuses)
    with_claims = msgspec.structs.replace(pod, status=status)
    requests = pod_requests(with_claims, rules=rules)
    if pod.spec.resources is not None and pod.spec.resources.requests:
        without_pod_level = pod_requests(with_claims, rules=msgspec.structs.replace(rules, pod_level=False))
        for name, amount in requests.items():
            if without_pod_level.get(name, 0) > amount:
                raise NodeAllocatableRejection(
                    f"pod level request for {name} is insufficient to cover the aggregated container and "
                    "node-allocatable DRA requests"
                )
    checked = ["cpu", "memory", "ephemeral-storage"]
    checked += [name for name in requests if name.startswith("hugepages-")]
    lacking = [
        name
        for name in checked
        if requests.get(name, 0) > node.allocatable.get(name, 0) - node.requested.get(name, 0)
        and (requests.get(name, 0) > 0 or name.startswith("hugepages-"))
    ]
    if lacking:
        raise NodeAllocatableRejection(
            *(f"Insufficient {name}" for name in lacking),
            is_resolvable=all(requests[name] <= node.allocatable.get(name, 0) for name in lacking),
        )
