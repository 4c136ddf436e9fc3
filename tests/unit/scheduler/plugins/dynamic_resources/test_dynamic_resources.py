"""DynamicResources: the extension points up to Reserve, and queueing hints."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Pod, to_json
from kubeloop.kube.objects.device_types import ResourceClaim
from kubeloop.scheduler.api.cycle_state import CycleState, PodGroupCycleState
from kubeloop.scheduler.api.events import Hint
from kubeloop.scheduler.api.extension_points import FilterPaused
from kubeloop.scheduler.api.status import Code, PluginFailure
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_groups import PodGroupState
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.dynamic_resources.device_allocation import DeviceAllocation
from kubeloop.scheduler.plugins.dynamic_resources.dynamic_resources import DynamicResources, requests_extended_resource
from support.objects.devices import (
    FilledDevices,
    allocated,
    alternative,
    claim,
    device,
    device_class,
    device_slice,
    request,
    typed,
)
from support.scheduling.plugin_cluster import NOW, make_member, make_pod_group, rejections

CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
TEMPLATE = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]}
SECOND = {"name": "second", "resourceClaimName": "s"}
SLICES = (device_slice("a", device("d"), device("e")), device_slice("b", device("d")))


@pytest.fixture
def plugin_with(plugin_cluster: Any, node: Any) -> Any:
    """Return a function that returns (plugin, cluster) with the nodes a and b, and these devices and claims."""

    def create(*objects: Any, gates: Any = None, **options: Any) -> tuple[DynamicResources, Any]:
        cluster = plugin_cluster([node("a"), node("b")], feature_gates=gates)
        cluster.devices = FilledDevices(device_class(), *SLICES, *objects, gates=gates, **options)
        return DynamicResources(plugin_args.DynamicResourcesArgs(), cluster), cluster

    return create


def test_pod_without_claims_is_skipped(plugin_cluster, node, pod):
    cluster = plugin_cluster([node("a")])
    plugin = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster)
    assert plugin.pre_enqueue(pod("p")) is None
    assert rejections(plugin, cluster, pod("p")) == {}


def test_allocation_is_not_imported_without_claims():
    code = "import sys, kubeloop.scheduler.scheduler; print(*(m for m in sys.modules if 'devices' in m or '.cel' in m))"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(result.stdout.split()) <= {"kubeloop.cel", "kubeloop.cel.go_text"}  # quotes texts in messages


@pytest.mark.parametrize(
    ("spec", "objects", "reason"),
    [
        pytest.param(CLAIM, [], 'could not find ResourceClaim "default/c"', id="no claim"),
        pytest.param(TEMPLATE, [], 'pod "default/p": ResourceClaim not created yet', id="no claim of a template"),
        pytest.param(
            CLAIM,
            [claim("c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            'resourceclaim "c" is being deleted',
            id="deleted claim",
        ),
        pytest.param(
            TEMPLATE | {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}},
            [claim("c", owner="other")],
            "ResourceClaim default/c was not created for Pod default/p (Pod is not owner)",
            id="claim of another pod",
        ),
    ],
)
def test_claim_that_cannot_be_used(plugin_with, pod, spec, objects, reason):
    plugin, cluster = plugin_with(*objects)
    assert plugin.pre_enqueue(pod("p", **spec)).reasons == (reason,)
    assert rejections(plugin, cluster, pod("p", **spec)) == {"": (reason,)}


def test_pod_waits_for_the_caches(plugin_with, pod):
    plugin, cluster = plugin_with(claim("c"), synced=False)
    assert plugin.pre_enqueue(pod("p", **CLAIM)).reasons == ("waiting for the caches of resource claims",)
    for informer in cluster.devices.informers.informers:
        informer.mark_stopped()
    assert plugin.pre_enqueue(pod("p", **CLAIM)) is None


def test_claim_that_the_pod_does_not_need_is_ignored(plugin_with, pod):
    plugin, cluster = plugin_with()
    unneeded = pod("p", **TEMPLATE, status={"resourceClaimStatuses": [{"name": "gpu"}]})
    assert plugin.pre_enqueue(unneeded) is None
    assert rejections(plugin, cluster, unneeded) == {}


MISSING_CLASS = "request r: device class nope does not exist"
ALTERNATIVES = {"name": "r", "firstAvailable": [alternative("x", count=2), alternative("y", "nope")]}


@pytest.mark.parametrize(
    ("entry", "gates", "code", "reason"),
    [
        (claim("c", request("r", "nope")), {}, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, MISSING_CLASS),
        (
            claim("c", ALTERNATIVES),
            {},
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
            "request r/y: device class nope does not exist",
        ),
        (claim("c", request("r", "")), {}, Code.ERROR, "request r: unsupported request type"),
        (
            claim("c", {"name": "r"}),
            {},
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
            "resource claim default/c, request r: unknown request type",
        ),
        (
            claim("c", ALTERNATIVES),
            {"DRAPrioritizedList": False},
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
            "resource claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled",
        ),
    ],
)
def test_pre_filter_rejects(plugin_with, pod, entry, gates, code, reason):
    plugin, cluster = plugin_with(entry, gates=gates)
    _, status = plugin.pre_filter(CycleState(), PodInfo(pod("p", **CLAIM)), cluster.snapshot)
    assert (status.code, status.reasons) == (code, (reason,))


def test_claim_that_is_being_allocated_must_be_awaited(plugin_with, pod):
    plugin, cluster = plugin_with(claim("c"))
    allocation = typed(claim("x", status=allocated(("a", "d")))).status.allocation
    cluster.devices.claims.add_pending("uid-c", allocation, pod("other"))
    reason = "resource claim default/c is in the process of being allocated"
    assert rejections(plugin, cluster, pod("p", **CLAIM)) == {"": (reason,)}


def test_nodes_without_enough_devices_are_rejected(plugin_with, pod):
    plugin, cluster = plugin_with(claim("c", request(count=2)))
    assert rejections(plugin, cluster, pod("p", **CLAIM)) == {"b": ("cannot allocate all claims",)}


def test_invalid_pools_are_reported(plugin_with, pod):
    broken = device_slice("a", device("x"), device("x"), name="z", pool="z")
    plugin, cluster = plugin_with(claim("c", request(count=3)), broken)
    assert rejections(plugin, cluster, pod("p", **CLAIM)) == {
        "a": ("invalid resource pools were encountered",),
        "b": ("cannot allocate all claims",),
    }


def test_allocated_claim_is_available_on_its_node(plugin_with, pod):
    plugin, cluster = plugin_with(claim("c", status=allocated(("a", "d"), node="a")))
    assert rejections(plugin, cluster, pod("p", **CLAIM)) == {"b": ("resourceclaim not available on the node",)}


@pytest.mark.parametrize(
    ("conditions", "seconds_ago", "gates", "rejected"),
    [
        ([{"type": "broken", "status": "True"}], 0, {}, True),
        ([{"type": "broken", "status": "True"}], 0, {"DRADeviceBindingConditions": False}, False),
        ([{"type": "ready", "status": "True"}], 700, {}, False),
        ([], 0, {}, False),
        ([], 700, {}, True),
    ],
)
def test_claim_whose_devices_cannot_be_bound_is_not_available(
    plugin_with, pod, conditions, seconds_ago, gates, rejected
):
    status = allocated(("a", "d"), bindingConditions=["ready"], bindingFailureConditions=["broken"])
    status["allocation"]["allocationTimestamp"] = (NOW - timedelta(seconds=seconds_ago)).isoformat()
    status["devices"] = [{"driver": "gpu.example.com", "pool": "a", "device": "d", "conditions": conditions}]
    plugin, cluster = plugin_with(claim("c", status=status), gates=gates)
    reasons = ("resourceclaim not available on the node",)
    assert rejections(plugin, cluster, pod("p", **CLAIM)) == (dict.fromkeys("ab", reasons) if rejected else {})


def test_score_prefers_the_first_alternative(plugin_with, pod):
    first_two = {"name": "r", "firstAvailable": [alternative("two", count=2), alternative("one")]}
    plugin, cluster = plugin_with(claim("c", first_two), claim("d", status=allocated(("z", "d"))))
    info = PodInfo(pod("p", resourceClaims=[{"name": name, "resourceClaimName": name} for name in ("c", "d")]))
    state, rows = CycleState(), cluster.snapshot.all_rows
    assert plugin.pre_filter(state, info, cluster.snapshot)[1] is None
    assert plugin.filter_rows(state, info, cluster.snapshot, rows).passed.all()
    assert plugin.score_rows(state, info, cluster.snapshot, rows).tolist() == [100, 87]


def test_pods_without_alternatives_are_not_scored(plugin_with, pod):
    plugin, cluster = plugin_with(claim("c"))
    info, state = PodInfo(pod("p")), CycleState()
    plugin.pre_filter(state, info, cluster.snapshot)
    assert plugin.score_rows(state, info, cluster.snapshot, cluster.snapshot.all_rows).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (
            claim("c", request(count=3)),
            "default/c, request r: needs 3 devices; at most 2 of one node can be used",
        ),
        (
            claim("c", status=allocated(("z", "d"), node="z")),
            "default/c: its devices are allocated, and not available on all nodes",
        ),
    ],
)
def test_explanation(plugin_with, pod, entry, line):
    plugin, cluster = plugin_with(entry)
    state, info = CycleState(), PodInfo(pod("p", **CLAIM))
    plugin.pre_filter(state, info, cluster.snapshot)
    plugin.filter_rows(state, info, cluster.snapshot, cluster.snapshot.all_rows)
    assert plugin.explain_pod(state, info, cluster.snapshot) == [line]


def test_search_is_an_attribute_of_the_attempt(plugin_with, pod):
    plugin, cluster = plugin_with(claim("c", request(count=2)))
    state, info = CycleState(), PodInfo(pod("p", **CLAIM))
    plugin.pre_filter(state, info, cluster.snapshot)
    plugin.filter_rows(state, info, cluster.snapshot, cluster.snapshot.all_rows)
    assert state.trace_attributes == {
        "kubeloop.devices.search_seconds": 0.0,  # the clock of this test stands still
        # a: two devices, three ends (devices, requests, claims); b: two devices; three devices are compared with "gpu"
        "kubeloop.devices.search_steps": 5 + 2 + 3,
        "kubeloop.devices.searched_nodes": 2,
    }


def reserved(plugin, cluster, pod, node="a") -> CycleState:
    """Filter and reserve; return the state."""
    state, info = CycleState(), PodInfo(pod)
    assert plugin.pre_filter(state, info, cluster.snapshot)[1] is None
    plugin.filter_rows(state, info, cluster.snapshot, cluster.snapshot.all_rows)
    assert plugin.reserve(state, info, node) is None
    return state


def test_ids_of_shared_devices_follow_from_the_seed(plugin_cluster, node, pod):
    shared = device("d", allowMultipleAllocations=True, capacity={"memory": "8Gi"})
    ids = []
    for _ in range(2):
        cluster = plugin_cluster([node("a")])
        cluster.devices = FilledDevices(device_class(), device_slice("a", shared), claim("c"))
        plugin = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster)
        (allocation,) = reserved(plugin, cluster, pod("p", **CLAIM)).read("DynamicResources").reserved.values()
        ids.append(allocation.devices.results[0].share_id)
    assert ids[0] == ids[1]
    assert ids[0]


def test_reserved_devices_are_not_given_to_another_pod(plugin_with, pod):
    plugin, cluster = plugin_with(claim("c"), claim("other", request(count=2)))
    other = pod("q", resourceClaims=[{"name": "gpu", "resourceClaimName": "other"}])
    assert rejections(plugin, cluster, other).keys() == {"b"}
    state = reserved(plugin, cluster, pod("p", **CLAIM))
    assert rejections(plugin, cluster, other).keys() == {"a", "b"}
    plugin.unreserve(state, PodInfo(pod("p", **CLAIM)), "a")
    assert rejections(plugin, cluster, other).keys() == {"b"}


def test_members_of_a_group_reserve_the_same_devices_again(plugin_with, pod):
    """The cycle of their group tries all members first; equal claims share the results of the last search."""
    plugin, cluster = plugin_with(claim("c"), claim("d"))
    pods = [pod("p", **CLAIM), pod("q", resourceClaims=[{"name": "gpu", "resourceClaimName": "d"}])]
    states = []
    for member in pods:
        states.append(reserved(plugin, cluster, member))
        states[-1].pod_group_cycle = PodGroupCycleState(PodGroupState())
    pending = cluster.devices.claims.pending
    first = {uid: entry.allocation for uid, entry in pending.items()}
    assert len({result.device for allocation in first.values() for result in allocation.devices.results}) == 2
    for member, state in zip(reversed(pods), reversed(states), strict=True):
        plugin.unreserve(state, PodInfo(member), "a")
    assert pending == {}
    for member, state in zip(pods, states, strict=True):
        assert plugin.reserve(state, PodInfo(member), "a") is None
    assert {uid: entry.allocation for uid, entry in pending.items()} == first


def test_cycle_of_a_group_leaves_the_reservations_of_its_pods(plugin_with, pod):
    status = {**allocated(("a", "gpu-0"), node="a"), "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}]}
    for in_group_cycle in (True, False):
        plugin, cluster = plugin_with(claim("c", status=status))
        state = reserved(plugin, cluster, pod("p", **CLAIM))
        state.pod_group_cycle = PodGroupCycleState(PodGroupState()) if in_group_cycle else None
        plugin.unreserve(state, PodInfo(pod("p", **CLAIM)), "a")
        assert len(cluster.spawned) == (0 if in_group_cycle else 1)
        for work in cluster.spawned:
            work.close()


def test_reserve_fails_without_a_search_on_the_node(plugin_with, pod):
    plugin, cluster = plugin_with(claim("c", request(count=2)))
    state, info = CycleState(), PodInfo(pod("p", **CLAIM))
    plugin.pre_filter(state, info, cluster.snapshot)
    assert plugin.reserve(state, info, "a").reasons == ("claim allocation not found for node",)


def test_pods_with_equal_claims_share_search_results(plugin_with, pod):
    plugin, cluster = plugin_with(claim("c"), claim("d"))
    assert isinstance(plugin._allocation, DeviceAllocation)
    states = []
    for name in ("c", "d"):
        info = PodInfo(pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": name}]))
        states.append(CycleState())
        plugin.pre_filter(states[-1], info, cluster.snapshot)
        plugin.filter_rows(states[-1], info, cluster.snapshot, cluster.snapshot.all_rows)
    first, second = (state.read("DynamicResources").searches[()].results for state in states)
    assert first is second
    cluster.devices.apply(device_class("gpu", "true"))
    info = PodInfo(pod("p", **CLAIM))
    plugin.pre_filter(states[0], info, cluster.snapshot)
    plugin.filter_rows(states[0], info, cluster.snapshot, cluster.snapshot.all_rows)
    assert states[0].read("DynamicResources").searches[()].results is not first  # the class has changed


FREE, USED = claim("c"), claim("c", status=allocated(("a", "d")))
OTHER = claim("other")


@pytest.mark.parametrize(
    ("old", "new", "queued"),
    [
        pytest.param(None, FREE, True, id="the pod's claim was created"),
        pytest.param(None, OTHER, False, id="another claim was created"),
        pytest.param(USED, FREE, True, id="the claim was deallocated"),
        pytest.param(claim("other", status=allocated(("a", "d"))), OTHER, True, id="another claim was deallocated"),
        pytest.param(FREE, FREE, False, id="no change of the status"),
        pytest.param(FREE, USED, True, id="the claim was allocated"),
    ],
)
def test_hint_after_claim_change(plugin_with, pod, old, new, queued):
    plugin, cluster = plugin_with(FREE)
    entry = {entry.event.resource: entry for entry in plugin.events_to_register()}["resource.k8s.io/ResourceClaim"]
    hint, waiting = entry.hint, pod("p", **CLAIM)
    expected = Hint.QUEUE if queued else Hint.SKIP
    assert hint(waiting, old and typed(old), typed(new)) == expected
    needed = entry.claim(old and typed(old), typed(new))
    is_deallocated = old is not None and bool(typed(old).status.allocation) and not typed(new).status.allocation
    assert needed == (None if is_deallocated else typed(new).key)
    assert hint(pod("q"), old and typed(old), typed(new)) == (Hint.QUEUE if needed is None else Hint.SKIP)
    cluster.devices.delete(claim("c", version="2"))
    assert hint(waiting, None, typed(FREE)) == Hint.SKIP


def test_hint_after_pod_change(plugin_with, pod):
    plugin, cluster = plugin_with(claim("p-gpu", owner="p"))
    hint = {entry.event.resource: entry.hint for entry in plugin.events_to_register()}["Pod"]
    waiting: Pod = pod("p", **TEMPLATE)
    created = pod("p", **TEMPLATE, status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]})
    assert hint(waiting, waiting, waiting) == Hint.SKIP
    assert hint(waiting, waiting, created) == Hint.QUEUE
    assert hint(pod("q", **TEMPLATE), waiting, created) == Hint.SKIP
    assert isinstance(cluster.devices.claims.get("default/p-gpu"), ResourceClaim)


# --- extended resources ----------------------------------------------------------------------------------------------

GPU = "example.com/gpu"
CLASS = device_class("gpu", extendedResourceName=GPU)
LEFTOVER = claim(
    "left",
    owner="p",
    status=allocated(("a", "d")),
    metadata={"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}},
)


def requesting(pod: Any, name: str = "p", **resources: int) -> Pod:
    """Return a pod that requests these extended resources; their names are those of example.com."""
    requests = {f"example.com/{resource}": str(count) for resource, count in resources.items()}
    result: Pod = pod(name, containers=[{"name": "c", "image": "i", "resources": {"requests": requests}}])
    return result


@pytest.fixture
def extended(plugin_cluster: Any, node: Any) -> Any:
    """Return a function that returns (plugin, cluster): c has a device plugin, a two devices, b one and "other"."""

    def create(*objects: Any, gates: Any = None, **options: Any) -> tuple[DynamicResources, Any]:
        nodes = [node("a"), node("b", allocatable={"example.com/other": "1"}), node("c", allocatable={GPU: "4"})]
        cluster = plugin_cluster(nodes, feature_gates=gates)
        cluster.devices = FilledDevices(CLASS, *SLICES, *objects, gates=gates, **options)
        return DynamicResources(plugin_args.DynamicResourcesArgs(), cluster), cluster

    return create


CANNOT_ALLOCATE = ("cannot allocate all claims",)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param({"gpu": 1}, {}, id="devices or a device plugin"),
        pytest.param({"gpu": 2}, {"b": CANNOT_ALLOCATE}, id="not enough devices"),
        pytest.param({"gpu": 9}, {"a": CANNOT_ALLOCATE, "b": CANNOT_ALLOCATE}, id="NodeResourcesFit checks plugins"),
        pytest.param({"gpu": 0, "none": 1}, {}, id="nothing for devices"),
        pytest.param(
            {"gpu": 1, "other": 1}, dict.fromkeys("ac", ("cannot fit resource",)), id="a resource without a class"
        ),
    ],
)
def test_nodes_for_extended_resources(extended, pod, resources, expected):
    plugin, cluster = extended()
    assert rejections(plugin, cluster, requesting(pod, **resources)) == expected


def test_extended_resources_need_their_feature_gate(extended, pod):
    plugin, cluster = extended(gates={"DRAExtendedResource": False}, synced=False)
    assert plugin.pre_enqueue(requesting(pod, gpu=9)) is None
    assert rejections(plugin, cluster, requesting(pod, gpu=9)) == {}


def test_pod_with_extended_resources_waits_for_the_caches(extended, pod):
    plugin, cluster = extended(synced=False)
    assert plugin.pre_enqueue(requesting(pod, gpu=1)).reasons == ("waiting for the caches of resource claims",)
    assert plugin.pre_enqueue(pod("q")) is None
    cluster.devices.is_overdue = True
    assert plugin.pre_enqueue(requesting(pod, gpu=1)) is None
    assert plugin.pre_enqueue(pod("q", **CLAIM)) is not None


def test_claims_and_extended_resources_are_allocated_together(extended, pod):
    plugin, cluster = extended(claim("c"))
    both = requesting(pod, gpu=1)
    both = pod("p", containers=[to_json(both.spec.containers[0])], **CLAIM)
    assert rejections(plugin, cluster, both) == {"b": CANNOT_ALLOCATE, "c": CANNOT_ALLOCATE}
    devices = reserved(plugin, cluster, both).read("DynamicResources")
    chosen = [devices.reserved[0], devices.special.allocation]
    assert [result.device for allocation in chosen for result in allocation.devices.results] == ["d", "e"]
    assert len(cluster.devices.claims.pending) == 2


def test_node_with_a_device_plugin_needs_no_devices(extended, pod):
    plugin, cluster = extended()
    devices = reserved(plugin, cluster, requesting(pod, gpu=1), "c").read("DynamicResources")
    assert (devices.special, devices.reserved) == (None, {})
    assert cluster.devices.claims.pending == {}


def test_devices_for_extended_resources_are_reserved_until_unreserve(extended, pod):
    plugin, cluster = extended()
    state = reserved(plugin, cluster, requesting(pod, gpu=2))
    assert rejections(plugin, cluster, requesting(pod, "q", gpu=1)).keys() == {"a"}
    plugin.unreserve(state, PodInfo(requesting(pod, gpu=2)), "a")
    assert rejections(plugin, cluster, requesting(pod, "q", gpu=1)) == {}
    assert cluster.spawned == []  # there is no claim to delete


def test_claim_of_a_former_attempt_rejects_all_nodes(extended, pod):
    plugin, cluster = extended(LEFTOVER)
    reason = ("cannot schedule extended resource claim",)
    assert rejections(plugin, cluster, requesting(pod, gpu=1)) == dict.fromkeys("abc", reason)


def test_pods_without_alternatives_score_equally_with_extended_resources(extended, pod):
    plugin, cluster = extended()
    state = reserved(plugin, cluster, requesting(pod, gpu=1))
    rows = cluster.snapshot.all_rows
    scores = plugin.score_rows(state, PodInfo(requesting(pod, gpu=1)), cluster.snapshot, rows)
    assert scores.tolist() == [0] * len(rows)


def test_explanation_of_extended_resources(extended, pod):
    plugin, cluster = extended()
    state, info = CycleState(), PodInfo(requesting(pod, gpu=3))
    plugin.pre_filter(state, info, cluster.snapshot)
    plugin.filter_rows(state, info, cluster.snapshot, cluster.snapshot.all_rows)
    assert plugin.explain_pod(state, info, cluster.snapshot) == [
        "example.com/gpu of container c: devices of class gpu, request container-0-request-0",
        "default/<extended-resources>, request container-0-request-0: needs 3 devices; at most 2 of one node can be "
        "used",
    ]


def test_long_searches_pause_the_scheduling_cycle(extended, pod):
    plugin, cluster = extended()
    ticks = iter(range(0, 10**12, 30_000_000))  # 30 ms each time
    cluster.clock.time_ns = lambda: next(ticks)
    state, info, snapshot = CycleState(), PodInfo(requesting(pod, gpu=1)), cluster.snapshot
    plugin.pre_filter(state, info, snapshot)
    state.can_pause = True
    with pytest.raises(FilterPaused) as pause:
        plugin.filter_rows(state, info, snapshot, snapshot.all_rows)
    asyncio.run(pause.value.work)
    assert plugin.filter_rows(state, info, snapshot, snapshot.all_rows).passed.all()
    assert state.trace_attributes["kubeloop.devices.searched_nodes"] == 2


# --- resources of the node -------------------------------------------------------------------------------------------

NODE_ALLOCATABLE = {"DRANodeAllocatableResources": True}
TAKES_CPU = {"cpu": {"allocationMultiplier": "2"}}


def test_devices_take_cpu_of_their_node(plugin_cluster, node, pod):
    cluster = plugin_cluster(
        [node("a"), node("b"), node("c", allocatable={"cpu": "1"})], feature_gates=NODE_ALLOCATABLE
    )
    slices = [
        device_slice("a", device("d")),
        device_slice("b", device("d", nodeAllocatableResourceMappings=TAKES_CPU)),
        device_slice("c", device("d", nodeAllocatableResourceMappings=TAKES_CPU)),
    ]
    cluster.devices = FilledDevices(device_class(), *slices, claim("c"), gates=NODE_ALLOCATABLE)
    plugin = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster)
    containers = [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}]
    taking = pod("p", containers=containers, **CLAIM)
    assert rejections(plugin, cluster, taking) == {"c": ("Insufficient cpu",)}
    state = reserved(plugin, cluster, taking, "b")
    statuses = {name: [*map(to_json, claims)] for name, claims in state.node_allocatable_claims.items()}
    assert statuses == {"b": [{"resourceClaimName": "c", "containers": ("main",), "resources": {"cpu": "2"}}]}


def test_claim_that_takes_cpu_of_a_node_for_another_pod(plugin_cluster, node, pod):
    status = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c", "resources": {"cpu": "1"}}]}
    cluster = plugin_cluster([node("a"), node("b")], [pod("q", "a", status=status)], feature_gates=NODE_ALLOCATABLE)
    used = claim("c", status=allocated(("a", "d")))
    cluster.devices = FilledDevices(device_class(), *SLICES, used, gates=NODE_ALLOCATABLE)
    plugin = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster)
    reason = "node allocatable resource claim c is already used by another pod"
    assert rejections(plugin, cluster, pod("p", **CLAIM)) == {"a": (reason,)}


# --- claims of pod groups --------------------------------------------------------------------------------------------

GROUP_CLAIMS = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
GROUP_OWNER = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "g", "uid": "g"}
OF_GROUP = {"metadata": {"ownerReferences": [{**GROUP_OWNER, "controller": True}]}}
FROM_TEMPLATE = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}, **TEMPLATE}


@pytest.fixture
def group_with(plugin_with: Any) -> Any:
    """Return a function that returns (plugin, cluster) with the PodGroup g, which shares the claim."""

    def create(*objects: Any, entry: Any = None, **gates: bool) -> tuple[DynamicResources, Any]:
        plugin, cluster = plugin_with(*objects, gates=GROUP_CLAIMS | gates)
        cluster.put("pod_groups", make_pod_group("g", resourceClaims=[entry or CLAIM["resourceClaims"][0]]))
        return plugin, cluster

    return create


@pytest.mark.parametrize(
    ("gates", "group", "reason"),
    [
        pytest.param(GROUP_CLAIMS, "g", None, id="claim of the group"),
        pytest.param(GROUP_CLAIMS, "h", "neither Pod nor PodGroup h is the owner", id="claim of another group"),
        pytest.param(GROUP_CLAIMS, None, "Pod is not owner", id="pod without a group"),
        pytest.param({"GenericWorkload": True}, "g", "Pod is not owner", id="gate is off"),
    ],
)
def test_claim_of_a_group_is_used_by_its_pods(plugin_with, pod, gates, group, reason):
    plugin, cluster = plugin_with(claim("c", **OF_GROUP), gates=gates)
    cluster.put("pod_groups", make_pod_group("g"), make_pod_group("h"))
    member = pod("p", **FROM_TEMPLATE, **({"schedulingGroup": {"podGroupName": group}} if group else {}))
    reasons = (f"ResourceClaim default/c was not created for Pod default/p ({reason})",)
    status = plugin.pre_enqueue(member)
    assert (None if status is None else status.reasons) == (None if reason is None else reasons)
    assert rejections(plugin, cluster, member) == ({} if reason is None else {"": reasons})


def test_pod_of_a_missing_group_waits(plugin_with):
    plugin, cluster = plugin_with(claim("c"), gates=GROUP_CLAIMS)
    assert rejections(plugin, cluster, make_member("p", **CLAIM)) == {"": ('podgroup.scheduling.k8s.io "g" not found',)}


def in_cycle(plugin, cluster, pod, cycle) -> tuple[CycleState, list[str] | str]:
    """Return (state, the nodes that pass Filter, or why PreFilter rejects the pod) in the cycle of a group."""
    state, info, snapshot = CycleState(), PodInfo(pod), cluster.snapshot
    state.pod_group_cycle = cycle
    _, status = plugin.pre_filter(state, info, snapshot)
    if status is not None:
        return state, status.message
    passed = plugin.filter_rows(state, info, snapshot, snapshot.all_rows).passed
    return state, [snapshot.node_infos[row].name for row in snapshot.all_rows[passed]]


@pytest.mark.parametrize("gates", [GROUP_CLAIMS, {}], ids=["shared by the group", "shared by pods"])
def test_members_share_what_the_first_has_reserved(plugin_with, gates):
    plugin, cluster = plugin_with(claim("c"), gates=gates)
    cluster.put("pod_groups", make_pod_group("g", resourceClaims=CLAIM["resourceClaims"]))
    members, cycle = [make_member(name, **CLAIM) for name in "pqr"], PodGroupCycleState(PodGroupState())
    first, nodes = in_cycle(plugin, cluster, members[0], cycle)
    assert nodes == ["a", "b"]
    assert plugin.reserve(first, PodInfo(members[0]), "b") is None
    second, nodes = in_cycle(plugin, cluster, members[1], cycle)
    assert nodes == ["b"]  # where the devices are
    assert plugin.reserve(second, PodInfo(members[1]), "b") is None
    waits = "resource claim default/c is in the process of being allocated"
    for other_cycle in (None, PodGroupCycleState(PodGroupState())):
        assert in_cycle(plugin, cluster, members[2], other_cycle)[1] == waits
    pool = ("gpu.example.com", "b")
    for state, member, in_use in ((second, members[1], True), (first, members[0], False)):
        plugin.unreserve(state, PodInfo(member), "b")
        assert cluster.devices.usage.pool(pool).is_allocated("d") is in_use
    # The pods are bound one after the other, each as the cycle has chosen.
    for state, member in ((second, members[1]), (first, members[0])):
        state.pod_group_cycle = None
        assert plugin.reserve(state, PodInfo(member), "b") is None
    assert cluster.devices.claims.pending["uid-c"].pods == {"p", "q"}


def test_shared_and_own_claims_of_a_member_get_their_own_devices(group_with):
    three = device_slice("a", device("d"), device("e"), device("f"))
    plugin, cluster = group_with(three, claim("c"), claim("p-own"), claim("q-own"))
    cycle = PodGroupCycleState(PodGroupState())
    for name, order in (("p", 1), ("q", -1)):  # q has its own claim before that of the group
        claims = [*CLAIM["resourceClaims"], {"name": "own", "resourceClaimName": f"{name}-own"}][::order]
        member = make_member(name, resourceClaims=claims)
        state, _ = in_cycle(plugin, cluster, member, cycle)
        assert plugin.reserve(state, PodInfo(member), "a") is None
    pending = cluster.devices.claims.pending
    devices = {uid: entry.allocation.devices.results[0].device for uid, entry in pending.items()}
    assert devices == {"uid-c": "d", "uid-p-own": "e", "uid-q-own": "f"}


def test_members_use_shared_devices_on_several_nodes(plugin_with):
    in_zone = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a", "b"]}
    network = device_slice(
        None, device("net"), driver="net", nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}
    )
    plugin, cluster = plugin_with(
        claim("c", request("r", "net")), network, device_class("net", "device.driver == 'net'"), gates=GROUP_CLAIMS
    )
    cluster.put("pod_groups", make_pod_group("g", resourceClaims=CLAIM["resourceClaims"]))
    cycle = PodGroupCycleState(PodGroupState())
    for name, node in (("p", "a"), ("q", "b")):
        state, nodes = in_cycle(plugin, cluster, make_member(name, **CLAIM), cycle)
        assert nodes == ["a", "b"]
        assert plugin.reserve(state, PodInfo(make_member(name, **CLAIM)), node) is None
    assert cluster.devices.claims.pending["uid-c"].pods == {"p", "q"}


def test_alternative_that_another_member_has_reserved_scores(group_with):
    plugin, cluster = group_with(
        claim("c", {"name": "r", "firstAvailable": [alternative("x", count=3), alternative("y", count=1)]})
    )
    cycle = PodGroupCycleState(PodGroupState())
    for name in "pq":
        member = PodInfo(make_member(name, **CLAIM))
        state, _ = in_cycle(plugin, cluster, member.pod, cycle)
        scores = plugin.score_rows(state, member, cluster.snapshot, cluster.snapshot.all_rows)
        assert scores.tolist() == [100] * len(scores)
        assert plugin.reserve(state, member, "a") is None


def test_only_one_member_takes_cpu_of_a_node_by_a_shared_claim(group_with):
    plugin, cluster = group_with(claim("c"), **NODE_ALLOCATABLE)
    cluster.devices.apply(device_slice("a", device("d", nodeAllocatableResourceMappings=TAKES_CPU), generation=2))
    containers = [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}]
    members = [make_member(name, containers=containers, **CLAIM) for name in "pq"]
    cycle = PodGroupCycleState(PodGroupState())
    state, _ = in_cycle(plugin, cluster, members[0], cycle)
    assert plugin.reserve(state, PodInfo(members[0]), "a") is None
    statuses = [*map(to_json, state.node_allocatable_claims["a"])]
    cluster.cache.add_pod(make_member("p", "a", status={"nodeAllocatableResourceClaimStatuses": statuses}))
    cluster.refresh()
    assert in_cycle(plugin, cluster, members[1], cycle)[1] == []


@pytest.mark.parametrize(
    ("member", "objects", "line"),
    [
        pytest.param(TEMPLATE, [], "gpu: {}; not created yet from ResourceClaimTemplate gpus", id="not created"),
        pytest.param(FROM_TEMPLATE, [], "default/c: {}; does not exist", id="missing"),
        pytest.param(FROM_TEMPLATE, [claim("c", **OF_GROUP)], "default/c: {}", id="exists"),
    ],
)
def test_explanation_names_the_claims_of_the_group(group_with, member, objects, line):
    plugin, cluster = group_with(*objects, entry=TEMPLATE["resourceClaims"][0])
    state, info = CycleState(), PodInfo(make_member("p", **member))
    plugin.pre_filter(state, info, cluster.snapshot)
    expected = line.format("shared by the pods of PodGroup default/g")
    assert plugin.explain_pod(state, info, cluster.snapshot)[0] == expected


def test_explanation_of_a_claim_that_the_group_cannot_allocate(group_with):
    plugin, cluster = group_with(claim("c", request(count=3)))
    state, nodes = in_cycle(plugin, cluster, make_member("p", **CLAIM), None)
    assert nodes == []
    assert plugin.explain_pod(state, PodInfo(make_member("p", **CLAIM)), cluster.snapshot) == [
        "default/c: shared by the pods of PodGroup default/g",
        "default/c, request r: needs 3 devices; at most 2 of one node can be used",
    ]


def test_explanation_of_a_claim_that_is_being_allocated(group_with):
    plugin, cluster = group_with(claim("c"))
    allocation = typed(claim("x", status=allocated(("a", "d")))).status.allocation
    cluster.devices.claims.add_pending("uid-c", allocation, make_member("q"))
    lines = plugin.explain_pod(CycleState(), PodInfo(make_member("p", **CLAIM)), cluster.snapshot)
    assert lines == ["default/c: shared by the pods of PodGroup default/g; is being allocated"]


@pytest.mark.parametrize(
    ("requests", "extended"),
    [
        pytest.param({}, False, id="none"),
        pytest.param({"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}, False, id="native"),
        pytest.param({"cpu": "1", "hugepages-2Mi": "2Mi"}, False, id="huge pages"),
        pytest.param({"cpu": "1", "example.com/gpu": "1"}, True, id="extended"),
        pytest.param({"deviceclass.resource.kubernetes.io/gpu": "1"}, True, id="implicit name of a class"),
    ],
)
@pytest.mark.parametrize("containers", ["containers", "initContainers"])
def test_resources_that_devices_may_provide(requests, extended, containers, pod):
    container = {"name": "x", "resources": {"requests": requests}}
    assert requests_extended_resource(pod("p", **{containers: [container]})) is extended


@pytest.mark.parametrize(
    ("filter_timeout", "seconds"), [(None, None), ("0s", None), ("10s", 10.0), ("1m30s", 90.0), ("500ms", 0.5)]
)
def test_filter_timeout_limits_searches(filter_timeout, seconds, plugin_with):
    """0: no limit (DynamicResourcesArgs.filterTimeout)."""
    _, cluster = plugin_with()
    args = plugin_args.DynamicResourcesArgs(filter_timeout=filter_timeout)
    assert DeviceAllocation("DynamicResources", args, cluster)._settings.timeout_seconds == seconds


def test_pod_needs_no_group_if_groups_have_no_claims(plugin_with):
    """Without the gate DRAWorkloadResourceClaims, or without claims of the pod."""
    plugin, cluster = plugin_with(claim("c"), gates={"GenericWorkload": True})
    assert rejections(plugin, cluster, make_member("p", **CLAIM)) == {}
    plugin, cluster = plugin_with(gates=GROUP_CLAIMS)
    assert rejections(plugin, cluster, make_member("p")) == {}


def test_explanation_names_every_shared_claim(group_with):
    """An entry without a name of a claim yet does not hide the next one; nor does an entry of the pod alone."""
    entries = [{"name": "own", "resourceClaimName": "o"}, *TEMPLATE["resourceClaims"], SECOND]
    plugin, cluster = group_with()
    shared = [*TEMPLATE["resourceClaims"], SECOND]
    cluster.put("pod_groups", make_pod_group("g", resourceClaims=shared))
    state, info = CycleState(), PodInfo(make_member("p", resourceClaims=entries))
    plugin.pre_filter(state, info, cluster.snapshot)
    by_group = "shared by the pods of PodGroup default/g"
    assert plugin.explain_pod(state, info, cluster.snapshot)[:2] == [
        f"gpu: {by_group}; not created yet from ResourceClaimTemplate gpus",
        f"default/s: {by_group}; does not exist",
    ]


def test_malformed_node_selector_of_an_allocation_is_an_error(plugin_with, pod):
    """The API server accepts values of Gt that are not numbers."""
    expression = {"key": "slots", "operator": "Gt", "values": ["many"]}
    status = allocated(("a", "d"))
    status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    plugin, cluster = plugin_with(claim("c", status=status))
    _, status = plugin.pre_filter(CycleState(), PodInfo(pod("p", **CLAIM)), cluster.snapshot)
    assert status.code is Code.ERROR
    assert "many" in status.message


def test_error_of_a_search_fails_the_attempt_without_a_traceback(plugin_with, pod):
    plugin, cluster = plugin_with(
        claim("c", request(selectors=[{"cel": {"expression": "device.attributes['x'].y == 1"}}]))
    )
    state, info, snapshot = CycleState(), PodInfo(pod("p", **CLAIM)), cluster.snapshot
    plugin.pre_filter(state, info, snapshot)
    with pytest.raises(PluginFailure, match="CEL runtime error: no such key: y"):
        plugin.filter_rows(state, info, snapshot, snapshot.all_rows)
