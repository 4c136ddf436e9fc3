"""Resources of a node that claims consume."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from kubeloop.kube.objects.api_types import to_json
from kubeloop.kube.values.quantities import parse_quantity
from kubeloop.scheduler.cache.pod_requests import RequestRules
from kubeloop.scheduler.devices.allocator import AllocatedDevice
from kubeloop.scheduler.devices.errors import AllocationError
from kubeloop.scheduler.devices.node_allocatable import NodeAllocatableRejection, check_sharing, claim_statuses
from kubeloop.scheduler.devices.requests import claim_requests
from support.objects.devices import FilledDevices, claim, device, device_class, device_slice, typed

NOT_REFERENCED = "claim c: node-allocatable resource claim not referenced by any container within the pod"
RULES = RequestRules(node_allocatable=True)


def mapped(name: str, **mappings: Any) -> dict[str, Any]:
    return device(name, capacity={"cores": "8"}, nodeAllocatableResourceMappings=mappings)


def allocations(*devices: dict[str, Any], consumed: str = "") -> Any:
    """Return the claim c with these devices. consumed: of the capacity "cores" of each."""
    filled = FilledDevices(device_class(), device_slice("a", *devices))
    entry = claim_requests(typed(claim("c")), filled.device_class, filled.features, filled.selector_lists)
    amounts = {"cores": parse_quantity(consumed)} if consumed else None
    (pool,) = filled.pools.pools("a", {})
    return [(entry.claim, [AllocatedDevice(entry.requests[0][0], found, amounts) for found in pool.devices])]


@pytest.fixture
def using(pod: Any) -> Any:
    """Return a function that returns a pod whose container uses the claim c, unless `uses` is False."""

    def create(*, uses: bool = True, cpu: str = "1", **spec: Any) -> Any:
        resources = {"requests": {"cpu": cpu}, "claims": [{"name": "entry"}] if uses else []}
        containers = [{"name": "main", "resources": resources}]
        return pod("p", containers=containers, resourceClaims=[{"name": "entry", "resourceClaimName": "c"}], **spec)

    return create


@pytest.fixture
def info(plugin_cluster: Any, node: Any) -> Any:
    return plugin_cluster([node("a", allocatable={"cpu": "4", "memory": "4Gi"})]).snapshot.node_infos[0]


@pytest.mark.parametrize(
    ("devices", "consumed", "resources"),
    [
        pytest.param([mapped("d"), mapped("e")], "", None, id="no mappings"),
        pytest.param(
            [mapped("d", cpu={"allocationMultiplier": "1"}), mapped("e", cpu={"allocationMultiplier": "500m"})],
            "",
            {"cpu": "1500m"},
            id="sum of devices",
        ),
        pytest.param(
            [mapped("d", cpu={"capacityKey": "cores", "allocationMultiplier": "500m"})], "3", {"cpu": "1500m"},
            id="consumed capacity",
        ),
        pytest.param([mapped("d", memory={"capacityKey": "cores"})], "1Gi", {"memory": "1Gi"}, id="no multiplier"),
        pytest.param([mapped("d", memory={"capacityKey": "other"})], "1Gi", None, id="another capacity"),
    ],
)  # fmt: skip
def test_resources_of_a_claim(devices, consumed, resources, using, info):
    statuses = claim_statuses(using(), allocations(*devices, consumed=consumed), info, RULES)
    expected = {"resourceClaimName": "c", "containers": ["main"], "resources": resources}
    assert [*map(to_json, statuses)] == ([] if resources is None else [expected | {"containers": ("main",)}])


def test_capacity_must_be_consumed(using, info):
    with pytest.raises(AllocationError, match="ConsumedCapacity is nil, but Capacity key 'cores' is set"):
        claim_statuses(using(), allocations(mapped("d", cpu={"capacityKey": "cores"})), info, RULES)


@pytest.mark.parametrize(
    ("pod_fields", "multiplier", "reasons", "resolvable"),
    [
        ({"uses": False}, "1", (NOT_REFERENCED,), False),
        ({}, "4", ("Insufficient cpu",), False),
        ({"cpu": "3"}, "1", ("Insufficient cpu",), True),
        (
            {"resources": {"requests": {"cpu": "1500m"}}},
            "1",
            (
                "pod level request for cpu is insufficient to cover the aggregated container and node-allocatable "
                "DRA requests",
            ),
            False,
        ),
    ],
)  # fmt: skip
def test_rejections(pod_fields, multiplier, reasons, resolvable, using, plugin_cluster, node, pod):
    cluster = plugin_cluster([node("a", allocatable={"cpu": "4"})], [pod("q", "a", cpu="500m")])
    (info,) = cluster.snapshot.node_infos
    taken = allocations(mapped("d", cpu={"allocationMultiplier": multiplier}))
    with pytest.raises(NodeAllocatableRejection) as raised:
        claim_statuses(using(**pod_fields), taken, info, RULES)
    assert (raised.value.reasons, raised.value.is_resolvable) == (reasons, resolvable)


@pytest.mark.parametrize(
    ("users", "reason"),
    [
        ((), None),
        (("p",), None),
        (("q",), "node allocatable resource claim c is already used by another pod"),
        (("p", "q"), "node allocatable resource claim c shared by multiple pods"),
    ],
)
def test_claim_is_used_by_one_pod(users, reason, using, plugin_cluster, node, pod):
    status = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c", "resources": {"cpu": "1"}}]}
    cluster = plugin_cluster([node("a")], [pod(name, "a", status=status) for name in users])
    expectation = nullcontext() if reason is None else pytest.raises(NodeAllocatableRejection, match=reason)
    with expectation:
        check_sharing(using(), typed(claim("c")), cluster.snapshot.node_infos[0])


def test_pod_level_request_that_equals_the_sum_is_sufficient(using, plugin_cluster, node):
    """1 CPU of the container and 1 CPU of the device."""
    (info,) = plugin_cluster([node("a", allocatable={"cpu": "4"})]).snapshot.node_infos
    taken = allocations(mapped("d", cpu={"allocationMultiplier": "1"}))
    assert len(claim_statuses(using(resources={"requests": {"cpu": "2"}}), taken, info, RULES)) == 1
