"""The allocation as it is written to the status of a claim.

Source: Allocate and createNodeSelector of structured/internal/incubating/allocator_incubating.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kubeloop.kube.objects.api_types import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kubeloop.kube.objects.device_types import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from kubeloop.scheduler.devices.allocator import AllocatedDevice, NodeAllocation
from kubeloop.scheduler.devices.errors import AllocationError
from kubeloop.scheduler.devices.requests import ClaimRequests, DeviceFeatures, RequestAlternative


def allocation_results(
    claims: Sequence[ClaimRequests],
    allocation: NodeAllocation,
    node: str,
    features: DeviceFeatures,
    new_share_id: Callable[[], str],
) -> list[AllocationResult]:
    """Return one result per claim. Raises AllocationError."""
    return [
        AllocationResult(
            devices=DeviceAllocationResult(
                results=tuple(_result(device, features, new_share_id) for device in allocation.devices[number]),
                config=tuple(_config(claim, _chosen(claim, number, allocation.chosen))),
            ),
            node_selector=_node_selector(allocation.devices[number], node, claim.claim.metadata.name),
        )
        for number, claim in enumerate(claims)
    ]


def _result(
    allocated: AllocatedDevice, features: DeviceFeatures, new_share_id: Callable[[], str]
) -> DeviceRequestAllocationResult:
    request, device = allocated.request, allocated.device
    binding = features.binding_conditions
    return DeviceRequestAllocationResult(
        request=request.full_name,
        driver=device.driver,
        pool=device.pool,
        device=device.name,
        admin_access=True if request.admin_access else None,
        tolerations=request.tolerations,
        binding_conditions=device.device.binding_conditions if binding else (),
        binding_failure_conditions=device.device.binding_failure_conditions if binding else (),
        share_id=new_share_id() if allocated.amounts is not None else None,
        consumed_capacity={name: str(amount) for name, amount in (allocated.amounts or {}).items()},
    )


def _chosen(claim: ClaimRequests, number: int, chosen: Mapping[tuple[int, int], int]) -> list[RequestAlternative]:
    """Return the alternative of each request that was allocated."""
    return [alternatives[chosen.get((number, index), 0)] for index, alternatives in enumerate(claim.requests)]


def _config(claim: ClaimRequests, chosen: Sequence[RequestAlternative]) -> list[DeviceAllocationConfiguration]:
    """Return the configuration: of each class, then of the claim."""
    names_of_class: dict[str, list[str]] = {}
    class_of = {request.device_class.metadata.name: request.device_class for request in chosen}
    for request in chosen:
        names_of_class.setdefault(request.device_class.metadata.name, []).append(request.full_name)
    config = [
        DeviceAllocationConfiguration(source="FromClass", requests=tuple(names), opaque=entry.opaque)
        for name, names in names_of_class.items()
        for entry in class_of[name].spec.config
    ]
    for own in claim.claim.spec.devices.config:
        entry = DeviceAllocationConfiguration(source="FromClaim", requests=own.requests, opaque=own.opaque)
        if not own.requests:
            config.append(entry)
        config += [
            entry for request in chosen if request.base_name in own.requests or request.full_name in own.requests
        ]
    return config


def _node_selector(devices: Sequence[AllocatedDevice], node: str, claim: str) -> NodeSelector | None:
    """Return the nodes on which all devices of a claim are available; None: all nodes."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for allocated in devices:
        device = allocated.device
        source = device.device if device.per_device_node else device.slice
        if source.node_name is not None or device.device.binds_to_node:
            only = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(only,)),))
        terms = source.node_selector.node_selector_terms if source.node_selector is not None else ()
        if len(terms) > 1:
            raise AllocationError(
                f"create NodeSelector for claim {claim}: unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            )
        for term in terms:
            _add_new(term.match_fields, fields)
            _add_new(term.match_expressions, expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_fields=tuple(fields), match_expressions=tuple(expressions))
    return NodeSelector(node_selector_terms=(term,))


def _add_new(requirements: Sequence[NodeSelectorRequirement], to: list[NodeSelectorRequirement]) -> None:
    for requirement in requirements:
        if not any(
            (known.key, known.operator, {*known.values})
            == (requirement.key, requirement.operator, {*requirement.values})
            for known in to
        ):
            to.append(requirement)
