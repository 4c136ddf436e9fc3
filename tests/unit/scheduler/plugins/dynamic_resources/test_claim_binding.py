"""Writes to claims: allocation and reservation, binding conditions, deallocation."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from msgspec import structs

from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import ApiError, Conflict
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES
from kubeloop.kube.objects.api_types import ApiStatus, NodeAllocatableResourceClaimStatus, convert, to_json
from kubeloop.kube.objects.pod_claims import FINALIZER
from kubeloop.kube.objects.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubeloop.scheduler.api.cycle_state import CycleState, PodGroupCycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_groups import PodGroupState
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.devices.cluster_devices import ClusterDevices
from kubeloop.scheduler.metrics import SchedulerMetrics
from kubeloop.scheduler.plugins.dynamic_resources import claim_binding
from kubeloop.scheduler.plugins.dynamic_resources.dynamic_resources import DynamicResources
from support.apiserver.fake_apiserver import FakeApiServer, Write
from support.objects.devices import FilledDevices, allocated, claim, device, device_class, device_slice, typed
from support.scheduling.plugin_cluster import make_member, make_pod_group

pytestmark = pytest.mark.virtual_time

CONFLICT = Conflict(ApiStatus(code=409, reason="Conflict", message="changed"))
BOUND = {"resource": "pods", "name": "p", "uid": "p"}
SPEC = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}


class ClaimServer:
    """The API server's claim default/c: merges patches. conflicts: number of patches that fail first."""

    def __init__(self, devices: FilledDevices, stored: dict[str, Any]) -> None:
        self.devices, self.stored = devices, stored
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.failures: list[Exception] = []

    async def patch(self, resource: Any, name: str, body: Any, patch_type: Any, namespace: str, **options: Any) -> Any:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        subresource = options["subresource"]
        changes = {key: dict(value) for key, value in body.items()}
        for key in ("resourceVersion", "uid"):
            changes["metadata"].pop(key, None)
        self.patches.append((subresource, {key: value for key, value in changes.items() if value}))
        reserved = self.stored["status"].get("reservedFor", ())
        for key, value in changes.items():
            self.stored[key] = {**self.stored[key], **value}
        if patch_type is PatchType.STRATEGIC:
            removed = {entry["uid"] for entry in changes["status"]["reservedFor"]}
            self.stored["status"]["reservedFor"] = [entry for entry in reserved if entry["uid"] not in removed]
        self.stored["metadata"]["resourceVersion"] = str(int(self.stored["metadata"]["resourceVersion"]) + 1)
        return typed(self.stored)

    async def get(self, resource: Any, name: str, namespace: str) -> Any:
        await asyncio.sleep(0)
        return typed(self.stored)


class Pending:
    """The pod p with the claim c, reserved on the node a."""

    def __init__(
        self,
        cluster: Any,
        pod: Any,
        entry: dict[str, Any],
        *,
        conditions: tuple[str, ...] = (),
        failures: tuple[str, ...] = (),
    ) -> None:
        fields = {"bindingConditions": list(conditions)} if conditions else {}
        if failures:
            fields["bindingFailureConditions"] = list(failures)
        cluster.devices = FilledDevices(device_class(), device_slice("a", device("d", **fields)), entry)
        self.server = cluster.client = ClaimServer(cluster.devices, entry)
        self.cluster = cluster
        self.pod = pod("p", **SPEC)
        self.plugin = DynamicResources(plugin_args.DynamicResourcesArgs(binding_timeout="10s"), cluster)
        self.info = PodInfo(self.pod)
        self.reserve()

    def reserve(self) -> None:
        """Begin an attempt: reserve the claim on the node a."""
        self.state = CycleState()
        snapshot = self.cluster.snapshot
        assert self.plugin.pre_filter(self.state, self.info, snapshot)[1] is None
        self.plugin.filter_rows(self.state, self.info, snapshot, snapshot.all_rows)
        assert self.plugin.reserve(self.state, self.info, "a") is None

    async def bind(self) -> str | None:
        """Run PreBind; return the message of its status."""
        status = await self.plugin.pre_bind(self.state, self.info, "a")
        return None if status is None else status.message

    @property
    def in_use(self) -> bool:
        return bool(self.cluster.devices.usage.pool(("gpu.example.com", "a")).is_allocated("d"))


@pytest.fixture
def pending(plugin_cluster: Any, node: Any, pod: Any) -> Any:
    def create(entry: dict[str, Any] | None = None, **options: Any) -> Pending:
        return Pending(plugin_cluster([node("a")]), pod, entry or claim("c"), **options)

    return create


async def test_allocation_and_reservation_are_written(pending):
    attempt = pending()
    assert await attempt.bind() is None
    (finalizer, status) = attempt.server.patches
    assert finalizer == ("", {"metadata": {"finalizers": [FINALIZER]}})
    assert status[0] == "status"
    written = status[1]["status"]
    assert written["reservedFor"] == [BOUND]
    assert written["allocation"]["allocationTimestamp"] == "2026-03-01T00:00:00Z"
    assert [result["device"] for result in written["allocation"]["devices"]["results"]] == ["d"]
    assert attempt.cluster.devices.claims.pending == {}
    assert attempt.in_use  # the response counts until the informer shows it


async def test_allocated_claim_is_only_reserved(pending):
    status = {**allocated(("a", "d"), node="a"), "reservedFor": [{"resource": "pods", "name": "q", "uid": "q"}]}
    status["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:00Z"
    attempt = pending(claim("c", status=status))
    assert await attempt.bind() is None
    assert attempt.server.patches == [("status", {"status": {"reservedFor": [*status["reservedFor"], BOUND]}})]


async def test_reserved_claim_is_not_written(pending):
    attempt = pending(claim("c", status={**allocated(("a", "d")), "reservedFor": [BOUND]}))
    assert await attempt.bind() is None
    assert attempt.server.patches == []


async def test_conflict_is_retried_with_the_newest_claim(pending):
    attempt = pending()
    attempt.server.failures = [CONFLICT]
    attempt.server.stored["metadata"]["finalizers"] = [FINALIZER]
    assert await attempt.bind() is None
    assert [subresource for subresource, _ in attempt.server.patches] == ["status"]


async def test_claim_that_was_created_again_is_left_alone(pending):
    attempt = pending()
    attempt.server.failures = [CONFLICT]
    attempt.server.stored["metadata"]["uid"] = "new"
    assert await attempt.bind() == "claim default/c got deleted in the meantime"
    assert attempt.server.patches == []


async def test_failed_write_frees_the_devices(pending):
    attempt = pending()
    attempt.server.failures = [ApiError(ApiStatus(code=422, message="no"))]
    assert await attempt.bind() == "add finalizer to claim default/c: no"
    assert not attempt.in_use


async def test_claim_that_another_scheduler_allocated_is_left_alone(pending):
    attempt = pending()
    attempt.server.failures = [CONFLICT]
    attempt.server.stored["status"] = allocated(("a", "d"))
    assert await attempt.bind() == "claim default/c got allocated elsewhere in the meantime"
    assert attempt.server.patches == []
    assert attempt.in_use  # before the informer shows it


async def test_write_whose_response_was_lost_is_not_repeated(pending):
    attempt = pending()
    attempt.server.failures = [CONFLICT]
    attempt.server.stored["status"] = {**allocated(("a", "d")), "reservedFor": [BOUND]}
    attempt.server.stored["metadata"]["resourceVersion"] = "7"
    assert await attempt.bind() is None
    assert attempt.server.patches == []
    assert attempt.in_use


async def test_lost_write_of_an_earlier_attempt_with_other_devices_fails_the_binding(pending):
    attempt = pending()
    attempt.server.failures = [CONFLICT]
    attempt.server.stored["status"] = {**allocated(("a", "other")), "reservedFor": [BOUND]}
    assert await attempt.bind() == "claim default/c got allocated elsewhere in the meantime"


async def test_binding_waits_for_the_conditions_of_the_device(pending):
    attempt = pending(conditions=("ready",))
    binding = asyncio.create_task(attempt.bind())
    while not attempt.cluster.recorder.events:
        await asyncio.sleep(0.01)
    assert not binding.done()
    condition = {"type": "ready", "status": "True", "reason": "R", "message": "m"}
    identity = {"driver": "gpu.example.com", "pool": "a", "device": "d"}
    stored = attempt.server.stored
    stored["status"]["devices"] = [{**identity, "conditions": [condition]}]
    stored["metadata"]["resourceVersion"] = "9"
    attempt.cluster.devices.apply(stored)
    assert await binding is None


async def test_binding_fails_if_the_conditions_take_too_long(pending):
    attempt = pending(conditions=("ready",))
    assert await attempt.bind() == "device binding timeout: context deadline exceeded"


async def test_unreserve_removes_the_reservation(pending):
    attempt = pending()
    assert await attempt.bind() is None
    attempt.plugin.unreserve(attempt.state, attempt.info, "a")
    (work,) = attempt.cluster.spawned
    await work
    assert attempt.server.patches[-1] == ("status", {"status": {"reservedFor": [{"$patch": "delete", "uid": "p"}]}})


async def test_next_attempt_reserves_again_what_unreserve_removes(pending):
    attempt = pending()
    assert await attempt.bind() is None
    attempt.plugin.unreserve(attempt.state, attempt.info, "a")
    attempt.reserve()
    (removal,) = attempt.cluster.spawned
    await asyncio.gather(removal, attempt.bind())
    assert attempt.server.stored["status"]["reservedFor"] == [BOUND]


async def post_filter(plugin_cluster: Any, node: Any, pod: Any, entry: Any) -> tuple[str, Any]:
    """Return the message of PostFilter for a pod whose claim is allocated on a node that does not exist."""
    cluster = plugin_cluster([node("a")])
    cluster.devices = FilledDevices(device_class(), entry)
    cluster.client = ClaimServer(cluster.devices, entry)
    plugin, state, info = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster), CycleState(), PodInfo(pod)
    assert plugin.pre_filter(state, info, cluster.snapshot)[1] is None
    assert not plugin.filter_rows(state, info, cluster.snapshot, cluster.snapshot.all_rows).passed.any()
    _, status = await plugin.post_filter(state, info, cluster.snapshot, None)
    return status.message, cluster.client.patches


async def test_unused_claim_is_deallocated(plugin_cluster, node, pod):
    entry = claim("c", status={**allocated(("b", "d"), node="b"), "reservedFor": [BOUND]})
    message, patches = await post_filter(plugin_cluster, node, pod("p", **SPEC), entry)
    assert message == "deallocation of ResourceClaim completed"
    assert patches == [("status", {"status": {"reservedFor": None, "allocation": None, "devices": None}})]


async def test_claim_of_another_pod_is_not_deallocated(plugin_cluster, node, pod):
    entry = claim("c", status={**allocated(("b", "d"), node="b"), "reservedFor": [{"resource": "pods", "uid": "q"}]})
    message, patches = await post_filter(plugin_cluster, node, pod("p", **SPEC), entry)
    assert (message, patches) == ("still not schedulable", [])


async def test_post_filter_without_claims(plugin_cluster, pod):
    plugin = DynamicResources(plugin_args.DynamicResourcesArgs(), plugin_cluster([]))
    state, info = CycleState(), PodInfo(pod("p"))
    _, status = await plugin.post_filter(state, info, plugin_cluster([]).snapshot, None)
    assert status.message == "not found"
    plugin.pre_filter(state, info, plugin_cluster([]).snapshot)
    _, status = await plugin.post_filter(state, info, plugin_cluster([]).snapshot, None)
    assert status.message == "no new claims to deallocate"


# --- extended resources ----------------------------------------------------------------------------------------------

GPU = "example.com/gpu"
ANNOTATIONS = {"resource.kubernetes.io/extended-resource-claim": "true"}
MAPPING = {"containerName": "c", "resourceName": GPU, "requestName": "container-0-request-0"}


class SpecialServer:
    """An API server that creates one claim, which the informer shows after `delay_seconds`."""

    def __init__(self, devices: FilledDevices, *, delay_seconds: float = 0.0) -> None:
        self.devices, self.delay_seconds = devices, delay_seconds
        self.stored: dict[str, Any] = {}
        self.requests: list[tuple[str, Any]] = []
        self.failures: dict[str, Exception] = {}

    def _request(self, what: str, body: Any = None) -> None:
        self.requests.append((what, body))
        if (failure := self.failures.get(what)) is not None:
            raise failure

    async def create(self, resource: Any, body: Any, namespace: str) -> Any:
        self._request("create", body)
        metadata = {**body["metadata"], "name": "special", "uid": "special", "resourceVersion": "5"}
        self.stored = {**body, "metadata": metadata, "status": {}}
        shown = typed(self.stored)
        asyncio.get_running_loop().call_later(self.delay_seconds, self.devices.apply, to_json(shown))
        return shown

    async def patch(self, resource: Any, name: str, body: Any, patch_type: Any, namespace: str, **options: Any) -> Any:
        what = f"{resource.plural}/{options['subresource']}".rstrip("/")
        self._request(what, body)
        if resource.plural == "resourceclaims":
            for key, value in body.items():
                self.stored[key] = {**self.stored[key], **value}
            self.stored["metadata"]["resourceVersion"] = str(int(self.stored["metadata"]["resourceVersion"]) + 1)
            return typed(self.stored)
        return None

    async def delete(self, resource: Any, name: str, namespace: str, **options: Any) -> None:
        self._request("delete", (name, options))


@pytest.fixture
def special(plugin_cluster: Any, node: Any, pod: Any) -> Any:
    """Return a function that returns a pod that requests a GPU, reserved on the node a: bind(), server, cluster."""

    def create(*, conditions: tuple[str, ...] = (), **options: Any) -> Pending:
        attempt = Pending.__new__(Pending)
        cluster = attempt.cluster = plugin_cluster([node("a")])
        cluster.metrics = RecordedMetrics()
        fields = {"bindingConditions": list(conditions)} if conditions else {}
        cluster.devices = FilledDevices(
            device_class(extendedResourceName=GPU), device_slice("a", device("d", **fields))
        )
        attempt.server = cluster.client = SpecialServer(cluster.devices, **options)
        attempt.pod = pod("p", containers=[{"name": "c", "resources": {"requests": {GPU: "1"}}}])
        attempt.plugin = DynamicResources(plugin_args.DynamicResourcesArgs(binding_timeout="10s"), cluster)
        attempt.info = PodInfo(attempt.pod)
        attempt.reserve()
        return attempt

    return create


class RecordedMetrics(SchedulerMetrics):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def claim_created(self, *, succeeded: bool) -> None:
        self.calls.append(succeeded)

    def binding_conditions_awaited(self, profile: str, driver: str, result: str, seconds: float) -> None:
        self.calls.append(("awaited", profile, driver, result, round(seconds, 1)))

    def binding_conditions_allocated(self, profile: str, driver: str, result: str) -> None:
        self.calls.append(("allocated", profile, driver, result))


@pytest.mark.parametrize("delay_seconds", [0.0, 5.0])
async def test_special_claim_is_created_and_named_in_the_status(special, delay_seconds):
    attempt = special(delay_seconds=delay_seconds)
    assert await attempt.bind() is None
    (create, finalizer, status, pod_status) = attempt.server.requests
    assert create[0] == "create"
    assert create[1]["metadata"]["annotations"] == ANNOTATIONS
    assert finalizer[1]["metadata"]["finalizers"] == [FINALIZER]
    assert status[1]["status"]["reservedFor"] == [BOUND]
    assert [result["device"] for result in status[1]["status"]["allocation"]["devices"]["results"]] == ["d"]
    expected = {"resourceClaimName": "special", "requestMappings": [MAPPING]}
    assert pod_status == (
        "pods/status",
        {"metadata": {"uid": "p"}, "status": {"extendedResourceClaimStatus": expected}},
    )
    assert attempt.cluster.devices.claims.pending == {}
    assert attempt.in_use
    assert attempt.cluster.metrics.calls == [True]


@pytest.mark.parametrize(
    ("request_", "message", "deleted"),
    [
        ("create", "create claim for extended resources of pod default/p: no", False),
        ("resourceclaims/status", "add allocation and reservation to claim default/special: no", True),
        ("pods/status", "update pod default/p ExtendedResourceClaimStatus: no", True),
    ],
)
async def test_special_claim_is_deleted_if_binding_fails(special, request_, message, deleted):
    attempt = special()
    attempt.server.failures[request_] = ApiError(ApiStatus(code=403, message="no"))
    assert await attempt.bind() == message
    attempt.plugin.unreserve(attempt.state, attempt.info, "a")
    assert attempt.cluster.devices.claims.pending == {}
    for work in attempt.cluster.spawned:
        await work
    deletions = [body for what, body in attempt.server.requests if what == "delete"]
    assert deletions == ([("special", {"precondition_uid": "special"})] if deleted else [])
    if deleted:
        assert attempt.server.stored["metadata"]["finalizers"] == []
    assert attempt.cluster.metrics.calls == [deleted]


async def test_special_claim_whose_conditions_are_not_met_is_only_deleted(special):
    attempt = special(conditions=("ready",))
    binding = asyncio.create_task(attempt.bind())
    await asyncio.sleep(1)
    attempt.cluster.devices.apply(to_json(typed(attempt.server.stored)))
    assert await binding == "device binding timeout: context deadline exceeded"
    sent = len(attempt.server.requests)
    attempt.plugin.unreserve(attempt.state, attempt.info, "a")
    for work in attempt.cluster.spawned:
        await work
    assert [what for what, _ in attempt.server.requests[sent:]] == ["resourceclaims", "delete"]


async def test_binding_continues_if_the_informer_never_shows_the_claim(special, caplog):
    attempt = special(delay_seconds=2 * claim_binding._MAX_SHOWN_SECONDS)
    assert await attempt.bind() is None
    assert [record.getMessage() for record in caplog.records] == ["the informer does not show a claim"]


async def test_cancelled_binding_does_not_wait_for_the_informer(special):
    attempt = special(delay_seconds=60.0)
    attempt.server.patch = hang
    binding = asyncio.create_task(attempt.bind())
    await asyncio.sleep(1)
    binding.cancel()
    await asyncio.sleep(1)
    assert binding.cancelled()


async def hang(*_: Any, **__: Any) -> None:
    await asyncio.sleep(3600)


async def test_claim_of_a_former_attempt_is_deleted(plugin_cluster, node, pod):
    left = claim("left", owner="p", status={**allocated(("a", "d"))}, metadata={"annotations": ANNOTATIONS})
    cluster = plugin_cluster([node("a")])
    cluster.devices = FilledDevices(device_class(extendedResourceName=GPU), left)
    cluster.client = SpecialServer(cluster.devices)
    cluster.client.stored = left
    info = PodInfo(pod("p", containers=[{"name": "c", "resources": {"requests": {GPU: "1"}}}]))
    plugin, state = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster), CycleState()
    assert plugin.pre_filter(state, info, cluster.snapshot)[1] is None
    _, status = await plugin.post_filter(state, info, cluster.snapshot, None)
    assert status.message == "deletion of ResourceClaim completed"
    assert cluster.client.requests[-1] == ("delete", ("left", {"precondition_uid": "uid-left"}))


@pytest.mark.parametrize(("condition", "result"), [("ready", "success"), ("failed", "failure"), (None, "timeout")])
async def test_metrics_of_binding_conditions(pending, condition, result):
    attempt = pending(conditions=("ready",), failures=("failed",))
    metrics = attempt.cluster.metrics = RecordedMetrics()

    async def report() -> None:
        await asyncio.sleep(1)
        conditions = [{"type": condition, "status": "True", "reason": "", "message": ""}] if condition else []
        status = {"driver": "gpu.example.com", "pool": "a", "device": "d", "conditions": conditions}
        stored = attempt.server.stored
        stored["status"]["devices"] = [status]
        stored["metadata"]["resourceVersion"] = "99"
        attempt.cluster.devices.apply(stored)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(report())
        await attempt.bind()
    (awaited, allocations) = metrics.calls
    assert awaited[:4] == ("awaited", "default-scheduler", "gpu.example.com", result)
    assert awaited[4] >= 1.0
    assert allocations == ("allocated", "default-scheduler", "gpu.example.com", result)


async def test_resources_that_claims_take_are_written_and_cleared(special):
    attempt = special()
    taken = NodeAllocatableResourceClaimStatus(resource_claim_name="c", containers=("main",), resources={"cpu": "1"})
    attempt.state.read("DynamicResources").node_allocatable["a"] = (taken,)
    assert await attempt.bind() is None
    attempt.plugin.unreserve(attempt.state, attempt.info, "a")
    for work in attempt.cluster.spawned:
        await work
    statuses = [body["status"] for what, body in attempt.server.requests if what == "pods/status"]
    assert statuses[1:] == [
        {"nodeAllocatableResourceClaimStatuses": [to_json(taken)]},
        {"nodeAllocatableResourceClaimStatuses": None},
    ]


async def test_clearing_of_statuses_precedes_those_of_the_next_attempt(special):
    attempt = special()
    attempt.state.read("DynamicResources").node_allocatable["a"] = ()
    attempt.plugin.unreserve(attempt.state, attempt.info, "a")
    (clearing,) = attempt.cluster.spawned
    taken = NodeAllocatableResourceClaimStatus(resource_claim_name="c", containers=("main",), resources={"cpu": "1"})
    attempt.reserve()
    attempt.state.read("DynamicResources").special = None
    attempt.state.read("DynamicResources").node_allocatable["a"] = (taken,)
    statuses = []

    async def patch(resource: Any, name: str, body: Any, *_: Any, **__: Any) -> None:
        status = body["status"]["nodeAllocatableResourceClaimStatuses"]
        await asyncio.sleep(1 if status is None else 0)
        statuses.append(status)

    attempt.server.patch = patch
    await asyncio.gather(clearing, attempt.bind())
    assert statuses == [None, [to_json(taken)]]


# --- claims of pod groups --------------------------------------------------------------------------------------------

GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"}
GATES = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}


class Members:
    """The pods p, q and r of the group g, which use the claim c, as the cycle of the group has reserved them."""

    def __init__(self, cluster: Any, *, shared: bool) -> None:
        """shared: the claim is one of the PodGroup's."""
        self.cluster = cluster
        entry = claim("c")
        cluster.devices = FilledDevices(device_class(), device_slice("a", device("d")), entry, gates=GATES)
        cluster.put("pod_groups", make_pod_group("g", **(SPEC if shared else {})))
        self.server = cluster.client = ClaimServer(cluster.devices, entry)
        self.plugin = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster)
        self.attempts: dict[str, tuple[CycleState, PodInfo]] = {}
        cycle = PodGroupCycleState(PodGroupState())
        for name in "pqr":
            state, info = CycleState(), PodInfo(make_member(name, **SPEC))
            state.pod_group_cycle = cycle
            assert self.plugin.pre_filter(state, info, cluster.snapshot)[1] is None
            self.plugin.filter_rows(state, info, cluster.snapshot, cluster.snapshot.all_rows)
            assert self.plugin.reserve(state, info, "a") is None
            self.attempts[name] = state, info
        for state, _ in self.attempts.values():
            state.pod_group_cycle = None

    async def bind(self, names: str = "pqr") -> list[str | None]:
        """Run PreBind for these pods at once; return the messages of their statuses."""
        statuses = await asyncio.gather(*(self.plugin.pre_bind(*self.attempts[name], "a") for name in names))
        return [None if status is None else status.message for status in statuses]

    async def unreserve(self, name: str) -> None:
        self.plugin.unreserve(*self.attempts[name], "a")
        while self.cluster.spawned:
            await self.cluster.spawned.pop()

    @property
    def reserved_for(self) -> list[str]:
        return [consumer["uid"] for consumer in self.server.stored["status"].get("reservedFor", ())]

    @property
    def in_use(self) -> bool:
        return bool(self.cluster.devices.usage.pool(("gpu.example.com", "a")).is_allocated("d"))


@pytest.fixture
def members(plugin_cluster: Any, node: Any) -> Any:
    def create(*, shared: bool = True) -> Members:
        return Members(plugin_cluster([node("a")], feature_gates=GATES), shared=shared)

    return create


async def test_claim_of_a_group_is_written_once_and_reserved_for_the_group(members):
    group = members()
    assert await group.bind() == [None, None, None]
    (_, (_, body)) = group.server.patches  # the finalizer, and the status
    assert body["status"]["reservedFor"] == [GROUP]
    assert group.cluster.devices.claims.pending == {}
    assert group.in_use


async def test_claim_that_pods_of_a_group_share_is_reserved_for_each(members):
    group = members(shared=False)
    assert await group.bind() == [None, None, None]
    assert len(group.server.patches) == 4
    assert group.reserved_for == ["p", "q", "r"]
    assert group.cluster.devices.claims.pending == {}


@pytest.mark.parametrize("shared", [True, False])
async def test_member_that_cannot_write_leaves_the_allocation_to_the_next(members, shared):
    group = members(shared=shared)
    group.server.failures = [ApiError(ApiStatus(code=422, message="no"))]
    assert await group.bind("p") == ["add finalizer to claim default/c: no"]
    await group.unreserve("p")
    assert group.cluster.devices.claims.pending["uid-c"].pods == {"q", "r"}
    assert group.in_use
    assert await group.bind("qr") == [None, None]
    assert group.reserved_for == (["g"] if shared else ["q", "r"])
    await group.unreserve("q")
    removed = [{"$patch": "delete", "uid": "q"}]
    last = group.server.patches[-1][1]["status"]["reservedFor"]
    assert (last == removed) is not shared  # the group's reservation is for its other pods, too
    assert group.in_use


async def test_claim_that_another_scheduler_allocated_to_a_group_is_left_alone(members):
    group = members()
    taken = claim("c", status={**allocated(("b", "x")), "reservedFor": [GROUP]}, version="5")
    group.cluster.devices.apply(taken)
    assert await group.bind("p") == ["claim default/c got allocated elsewhere in the meantime"]
    assert group.server.patches == []


async def test_claim_that_was_unreserved_during_the_cycle_is_reserved_again(plugin_cluster, node):
    status = {**allocated(("a", "d"), node="a"), "reservedFor": [GROUP]}
    cluster = plugin_cluster([node("a")], feature_gates=GATES)
    entry = claim("c", status=status)
    cluster.devices = FilledDevices(device_class(), entry, gates=GATES)
    cluster.put("pod_groups", make_pod_group("g", **SPEC))
    cluster.client = ClaimServer(cluster.devices, claim("c", status={**status, "reservedFor": []}, version="2"))
    plugin, state = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster), CycleState()
    info = PodInfo(make_member("p", **SPEC))
    plugin.pre_filter(state, info, cluster.snapshot)
    cluster.devices.claims.assume(typed(cluster.client.stored))  # as the PostFilter of another member does
    assert await plugin.pre_bind(state, info, "a") is None
    ((_, body),) = cluster.client.patches
    assert body["status"]["reservedFor"] == [GROUP]


async def group_post_filter(
    plugin_cluster: Any, node: Any, entry: Any, *scheduled: Any, claims: Any = SPEC["resourceClaims"]
) -> tuple[str, Any]:
    """Return (message of PostFilter, patches) for a pod whose claim is allocated on a node that does not exist."""
    cluster = plugin_cluster([node("a")], scheduled, feature_gates=GATES)
    cluster.cache.pod_groups.put(make_member("p", **SPEC))
    cluster.devices = FilledDevices(device_class(), entry, gates=GATES)
    cluster.client = ClaimServer(cluster.devices, entry)
    cluster.put("pod_groups", make_pod_group("g", resourceClaims=claims))
    plugin, state = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster), CycleState()
    info = PodInfo(make_member("p", **SPEC))
    assert plugin.pre_filter(state, info, cluster.snapshot)[1] is None
    assert not plugin.filter_rows(state, info, cluster.snapshot, cluster.snapshot.all_rows).passed.any()
    _, result = await plugin.post_filter(state, info, cluster.snapshot, None)
    return result.message, cluster.client.patches


async def test_deallocated_claim_is_allocated_again_in_the_same_cycle(plugin_cluster, node):
    cluster = plugin_cluster([node("a")], feature_gates=GATES)
    entry = claim("c", status=allocated(("b", "d"), node="b"))
    cluster.devices = FilledDevices(device_class(), device_slice("a", device("d")), entry, gates=GATES)
    cluster.client = ClaimServer(cluster.devices, entry)
    cluster.put("pod_groups", make_pod_group("g", **SPEC))
    plugin, info = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster), PodInfo(make_member("p", **SPEC))

    def filtered() -> tuple[CycleState, bool]:
        state = CycleState()
        state.pod_group_cycle = PodGroupCycleState(PodGroupState())
        assert plugin.pre_filter(state, info, cluster.snapshot)[1] is None
        result = plugin.filter_rows(state, info, cluster.snapshot, cluster.snapshot.all_rows)
        return state, bool(result.passed.any())

    state, fits = filtered()
    assert not fits
    await plugin.post_filter(state, info, cluster.snapshot, None)
    state, fits = filtered()
    assert fits
    for step in (plugin.reserve, plugin.unreserve, plugin.reserve):
        step(state, info, "a")
    state.pod_group_cycle = None
    assert await plugin.pre_bind(state, info, "a") is None
    assert cluster.client.stored["status"]["reservedFor"] == [GROUP]


RESERVED_FOR_GROUP = {**allocated(("b", "d"), node="b"), "reservedFor": [GROUP]}


async def test_claim_of_a_group_without_nodes_is_unreserved(plugin_cluster, node):
    message, patches = await group_post_filter(plugin_cluster, node, claim("c", status=RESERVED_FOR_GROUP))
    assert message == "ResourceClaim unreserved for PodGroup"
    assert patches == [("status", {"status": {"reservedFor": [{"$patch": "delete", "uid": "g"}]}})]


async def test_unreserved_claim_of_a_group_is_deallocated(plugin_cluster, node):
    entry = claim("c", status={**RESERVED_FOR_GROUP, "reservedFor": []})
    message, _ = await group_post_filter(plugin_cluster, node, entry)
    assert message == "deallocation of ResourceClaim completed"


async def test_claim_of_a_group_stays_while_one_of_its_pods_has_a_node(plugin_cluster, node):
    entry = claim("c", status=RESERVED_FOR_GROUP)
    bound = make_member("q", "a", **SPEC)
    assert await group_post_filter(plugin_cluster, node, entry, bound) == ("still not schedulable", [])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        pytest.param({"resourceClaimName": "x"}, 'could not find ResourceClaim "default/x"', id="missing claim"),
        pytest.param(
            {"resourceClaimTemplateName": "x"}, "PodGroup default/g: ResourceClaim not created yet", id="no claim yet"
        ),
    ],
)
async def test_post_filter_of_a_group_without_its_claims(plugin_cluster, node, entry, message):
    used = claim("c", status={**RESERVED_FOR_GROUP, "reservedFor": [{"resource": "pods", "name": "q", "uid": "q"}]})
    result = await group_post_filter(plugin_cluster, node, used, claims=[{"name": "other", **entry}])
    assert result == (message, [])


async def test_claim_that_is_deleted_before_the_informer_is_asked_is_not_awaited(special):
    attempt, server = special(), FakeApiServer()
    objects = {DEVICE_CLASSES: device_class(extendedResourceName=GPU), RESOURCE_SLICES: device_slice("a", device("d"))}
    for resource, obj in objects.items():
        server.api.create(resource.path(), {**obj, "metadata": {"name": obj["metadata"]["name"]}})
    devices = attempt.cluster.devices = ClusterDevices(server.informers, DEFAULT_FEATURE_GATES)

    def delete(write: Write) -> None:
        assert write.after is not None
        server.delete(RESOURCE_CLAIMS, write.after["metadata"]["name"], namespace="default")

    server.on_write = delete
    attempt.cluster.client = server.client
    async with asyncio.TaskGroup() as tasks:
        informers = tasks.create_task(server.informers.run())
        await devices.wait_synced()
        attempt.plugin = DynamicResources(plugin_args.DynamicResourcesArgs(), attempt.cluster)
        attempt.reserve()
        began = asyncio.get_running_loop().time()
        assert "not found" in (await attempt.bind() or "")
        assert asyncio.get_running_loop().time() - began < 1
        informers.cancel()


async def test_undone_allocation_that_was_not_written_is_reported(pending):
    attempt, undone = pending(), []
    attempt.cluster.devices._allocation_undone = lambda old, new: undone.append((old, new))
    attempt.plugin.unreserve(attempt.state, attempt.info, "a")
    ((old, new),) = undone
    assert old.status.allocation is not None
    assert (new.key, new.status.allocation) == ("default/c", None)
    attempt.reserve()
    assert await attempt.bind() is None
    attempt.plugin.unreserve(attempt.state, attempt.info, "a")
    for work in attempt.cluster.spawned:
        await work
    assert len(undone) == 1  # the informer shows that the written one is removed


async def test_allocation_is_reported_as_undone_if_its_claim_cannot_be_created(special):
    attempt, undone = special(), []
    attempt.cluster.devices._allocation_undone = lambda old, new: undone.append(old)
    attempt.server.failures["create"] = ApiError(ApiStatus(code=403, message="no"))
    assert await attempt.bind()
    attempt.plugin.unreserve(attempt.state, attempt.info, "a")
    assert len(undone) == 1


# --- tables of decisions: what is written, which tries are repeated, when waiting ends ------------------------------

OTHER = {"resource": "pods", "name": "q", "uid": "q"}
STAMPED = {**allocated(("a", "d"), node="a")}
STAMPED["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:00Z"
DELETED_AT = {"deletionTimestamp": "2026-03-01T00:00:00Z"}
REFUSED = ApiError(ApiStatus(code=422, message="no"))


@pytest.mark.parametrize(
    ("metadata", "status", "message", "written"),
    [
        pytest.param({}, STAMPED, None, {"reservedFor": [BOUND]}, id="allocated"),
        pytest.param(
            {},
            allocated(("a", "d"), node="a"),
            None,
            {"reservedFor": [BOUND], "allocation": {"allocationTimestamp": "2026-03-01T00:00:00Z"}},
            id="allocated without the time",
        ),
        pytest.param({}, {**STAMPED, "reservedFor": [BOUND]}, None, None, id="reserved"),
        pytest.param(DELETED_AT, {**STAMPED, "reservedFor": [BOUND]}, None, None, id="reserved, is being deleted"),
        pytest.param(
            DELETED_AT, STAMPED, "claim default/c got deleted in the meantime", None, id="allocated, is being deleted"
        ),
        pytest.param({}, {}, "claim default/c got deallocated elsewhere in the meantime", None, id="deallocated"),
        pytest.param(
            {},
            {"reservedFor": [OTHER]},
            "claim default/c got deallocated elsewhere in the meantime",
            None,
            id="no devices",
        ),
    ],
)
async def test_newest_state_of_an_allocated_claim_decides_what_is_written(pending, metadata, status, message, written):
    attempt = pending(claim("c", status=STAMPED))
    newest = claim("c", status=status, version="7", metadata=metadata)
    attempt.server.stored = newest
    attempt.cluster.devices.apply(newest)
    assert await attempt.bind() == message
    assert attempt.server.patches == ([] if written is None else [("status", {"status": written})])


@pytest.mark.parametrize(("conflicts", "message"), [(0, None), (1, None), (4, None), (5, "changed")], ids=str)
async def test_writes_are_tried_five_times(pending, conflicts, message):
    attempt = pending()
    attempt.server.failures = [CONFLICT] * conflicts
    began = asyncio.get_running_loop().time()
    assert await attempt.bind() == message
    assert attempt.server.failures == []
    pauses = min(conflicts, 4)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.01 * pauses)
    assert bool(attempt.server.patches) is (message is None)


READY = {"driver": "gpu.example.com", "pool": "a", "device": "d"}


def awaiting(pending: Any, *, allocated_at: str = "2026-03-01T00:00:00Z") -> Pending:
    """Return the attempt of a pod whose claim is reserved for it, and whose device requires the condition ready."""
    status = {**allocated(("a", "d"), node="a", bindingConditions=["ready"]), "reservedFor": [BOUND]}
    status["allocation"]["allocationTimestamp"] = allocated_at
    attempt: Pending = pending(claim("c", status=status), conditions=("ready",))
    return attempt


def show_condition(attempt: Pending, status: str) -> None:
    """Let the informer show the condition ready with this status."""
    condition = {"type": "ready", "status": status, "reason": "R", "message": "m"}
    stored = attempt.server.stored
    stored["status"]["devices"] = [{**READY, "conditions": [condition]}]
    stored["metadata"]["resourceVersion"] = str(int(stored["metadata"]["resourceVersion"]) + 1)
    attempt.cluster.devices.apply(stored)


@pytest.mark.parametrize(
    ("allocated_at", "message", "seconds"),
    [
        pytest.param("2026-03-01T00:00:00Z", "context deadline exceeded", 10.0, id="allocated now"),
        pytest.param("2026-02-28T23:59:50Z", "context deadline exceeded", 10.0, id="as old as the limit"),
        pytest.param("2026-02-28T23:59:49Z", "claim=c", 0.0, id="older than the limit"),
    ],
)
async def test_wait_for_conditions_ends_by_age_of_the_allocation(pending, allocated_at, message, seconds):
    attempt, began = awaiting(pending, allocated_at=allocated_at), asyncio.get_running_loop().time()
    assert await attempt.bind() == f"device binding timeout: {message}"
    assert asyncio.get_running_loop().time() - began == pytest.approx(seconds)


async def test_conditions_are_checked_with_growing_pauses_of_at_most_a_second(pending, monkeypatch):
    attempt = awaiting(pending)
    loop, checks = asyncio.get_running_loop(), []
    is_ready = claim_binding.is_ready_for_binding

    def record(checked: Any) -> bool:
        checks.append(loop.time())
        return is_ready(checked)

    monkeypatch.setattr(claim_binding, "is_ready_for_binding", record)
    loop.call_later(3.0, show_condition, attempt, "True")
    assert await attempt.bind() is None
    pauses = [round(after - before, 3) for before, after in itertools.pairwise(checks)]
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]


@pytest.mark.parametrize(("status", "seconds"), [("True", 0.0), ("False", 10.0), ("Unknown", 10.0)])
async def test_binding_waits_until_the_condition_is_true(pending, status, seconds):
    attempt, began = awaiting(pending), asyncio.get_running_loop().time()
    show_condition(attempt, status)
    assert (await attempt.bind() is None) is (status == "True")
    assert asyncio.get_running_loop().time() - began == pytest.approx(seconds)
    (event,) = attempt.cluster.recorder.events
    assert (event.type, event.reason) == ("Normal", "BindingConditionsPending")
    assert event.message == "waiting for binding conditions for device on node a"


async def test_claim_that_is_deleted_while_its_conditions_are_awaited_fails_the_binding(pending):
    attempt = awaiting(pending)
    attempt.cluster.metrics = RecordedMetrics()
    asyncio.get_running_loop().call_later(1.0, lambda: attempt.cluster.devices.delete(attempt.server.stored))
    assert await attempt.bind() == 'could not find ResourceClaim "default/c"'
    assert [(call[0], call[3]) for call in attempt.cluster.metrics.calls] == [
        ("awaited", "error"),
        ("allocated", "error"),
    ]


async def test_conditions_are_not_awaited_without_the_gate(plugin_cluster, node, pod):
    cluster, gates = plugin_cluster([node("a")]), {"DRADeviceBindingConditions": False}
    status = {**allocated(("a", "d"), node="a", bindingConditions=["ready"])}
    entry = claim("c", status=status)
    cluster.devices = FilledDevices(device_class(), entry, gates=gates)
    server = cluster.client = ClaimServer(cluster.devices, entry)
    plugin, state = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster), CycleState()
    info = PodInfo(pod("p", **SPEC))
    assert plugin.pre_filter(state, info, cluster.snapshot)[1] is None
    assert await plugin.pre_bind(state, info, "a") is None
    assert server.patches == [("status", {"status": {"reservedFor": [BOUND]}})], "no time of the allocation"


def unusable(name: str, *consumers: dict[str, str]) -> dict[str, Any]:
    """Return a claim that is allocated on a node that does not exist, and reserved for these."""
    return claim(name, status={**allocated(("b", name), node="b"), "reservedFor": [*consumers]})


class ClaimServers:
    """Records (claim, body) of patches; `failures` are raised by the first."""

    def __init__(self, *failures: Exception) -> None:
        self.patches: list[tuple[str, Any]] = []
        self.failures = [*failures]

    async def patch(self, resource: Any, name: str, body: Any, patch_type: Any, namespace: str, **options: Any) -> Any:
        self.patches.append((name, body))
        if self.failures:
            raise self.failures.pop(0)
        return typed(claim(name, version="9"))


@pytest.mark.parametrize(
    ("claims", "failures", "message", "patched"),
    [
        pytest.param([unusable("c")], [], "deallocation of ResourceClaim completed", ["c"], id="reserved for no pod"),
        pytest.param(
            [unusable("c", BOUND)], [], "deallocation of ResourceClaim completed", ["c"], id="reserved for this pod"
        ),
        pytest.param([unusable("c", OTHER)], [], "still not schedulable", [], id="reserved for another pod"),
        pytest.param([unusable("c", BOUND, OTHER)], [], "still not schedulable", [], id="also for another pod"),
        pytest.param(
            [unusable("c", OTHER), unusable("d", BOUND)],
            [],
            "deallocation of ResourceClaim completed",
            ["d"],
            id="one of two is free",
        ),
        pytest.param(
            [unusable("c", BOUND), unusable("d", OTHER), unusable("e", OTHER)],
            [],
            "deallocation of ResourceClaim completed",
            ["c"],
            id="one of three is free",
        ),
        pytest.param([unusable("c")], [REFUSED], "deallocate claim default/c: no", ["c"], id="refused"),
        pytest.param([unusable("c")], [CONFLICT], "changed", ["c"], id="changed meanwhile: tried in the next attempt"),
    ],
)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_post_filter_deallocates_one_claim_that_no_other_pod_uses(
    plugin_cluster, node, pod, claims, failures, message, patched, seed
):
    cluster = plugin_cluster([node("a")])
    cluster.rng.seed(seed)
    cluster.devices = FilledDevices(device_class(), *claims)
    server = cluster.client = ClaimServers(*failures)
    entries = [{"name": entry["metadata"]["name"], "resourceClaimName": entry["metadata"]["name"]} for entry in claims]
    plugin, state = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster), CycleState()
    info = PodInfo(pod("p", resourceClaims=entries))
    assert plugin.pre_filter(state, info, cluster.snapshot)[1] is None
    assert not plugin.filter_rows(state, info, cluster.snapshot, cluster.snapshot.all_rows).passed.any()
    _, status = await plugin.post_filter(state, info, cluster.snapshot, None)
    assert (status.message, [name for name, _ in server.patches]) == (message, patched)
    succeeded = message.startswith("deallocation")
    for name in patched:
        shown = cluster.devices.claims.get(f"default/{name}")
        assert (shown.status.allocation is None) is succeeded, "the response counts before the informer shows it"
    for name, body in server.patches:
        assert body["metadata"] == {"resourceVersion": "1", "uid": f"uid-{name}"}


GROUP_OWNER = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "g", "controller": True}


@pytest.mark.parametrize(
    ("owner", "reserved", "refused", "message", "written"),
    [
        pytest.param("g", [GROUP], False, "ResourceClaim unreserved for PodGroup", True, id="of the group"),
        pytest.param("other", [GROUP], False, "still not schedulable", False, id="of another group"),
        pytest.param("g", [OTHER], False, "still not schedulable", False, id="not reserved for the group"),
        pytest.param("g", [GROUP], True, "still not schedulable", True, id="refused"),
    ],
)
async def test_reservation_of_a_claim_of_the_groups_template(
    plugin_cluster, node, owner, reserved, refused, message, written
):
    status = {**allocated(("b", "d"), node="b"), "reservedFor": reserved}
    generated = claim("c", status=status, metadata={"ownerReferences": [{**GROUP_OWNER, "uid": owner}]})
    used = claim("used", status={**allocated(("b", "x"), node="b"), "reservedFor": [OTHER]})
    cluster = plugin_cluster([node("a")], feature_gates=GATES)
    cluster.cache.pod_groups.put(make_member("p", **SPEC))
    cluster.devices = FilledDevices(device_class(), generated, used, gates=GATES)
    cluster.client = ClaimServer(cluster.devices, generated)
    if refused:
        cluster.client.failures = [REFUSED]
    group_status = {"resourceClaimStatuses": [{"name": "none"}, {"name": "gpu", "resourceClaimName": "c"}]}
    templates = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("none", "gpu")]
    group = make_pod_group("g", resourceClaims=templates)
    group = structs.replace(group, status=convert(type(group.status), group_status))
    cluster.put("pod_groups", group)
    plugin, state = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster), CycleState()
    info = PodInfo(make_member("p", resourceClaims=[{"name": "own", "resourceClaimName": "used"}]))
    assert plugin.pre_filter(state, info, cluster.snapshot)[1] is None
    assert not plugin.filter_rows(state, info, cluster.snapshot, cluster.snapshot.all_rows).passed.any()
    _, result = await plugin.post_filter(state, info, cluster.snapshot, None)
    assert result.message == message
    assert bool(cluster.client.patches) is (written and not refused)
    assert cluster.client.failures == []


@pytest.mark.parametrize(
    ("condition", "message", "result", "seconds"),
    [
        ("ready", None, "success", (0.6, 1.3)),
        ("failed", 'device binding failed: claim=c, reason=R, message="m"', "failure", (0.6, 1.3)),
        (None, "device binding timeout: context deadline exceeded", "timeout", (10.0, 10.0)),
    ],
)
async def test_result_and_duration_of_the_wait_for_conditions(pending, condition, message, result, seconds):
    attempt = pending(conditions=("ready",), failures=("failed",))
    metrics = attempt.cluster.metrics = RecordedMetrics()
    loop = asyncio.get_running_loop()
    await asyncio.sleep(3.0)  # before the wait begins

    def show() -> None:
        entry = {"type": condition, "status": "True", "reason": "R", "message": "m"}
        stored = attempt.server.stored
        stored["status"]["devices"] = [{**READY, "conditions": [entry] if condition else []}]
        stored["metadata"]["resourceVersion"] = "99"
        attempt.cluster.devices.apply(stored)

    loop.call_later(0.6, show)  # checks follow after 0.62 and 1.26 seconds
    assert await attempt.bind() == message
    ((_, _, _, awaited, duration), (_, _, _, allocated_result)) = metrics.calls
    assert (awaited, allocated_result) == (result, result)
    shortest, longest = seconds
    assert shortest <= duration <= longest


async def test_claim_that_no_cache_shows_is_bound_in_the_state_that_was_reserved(pending):
    attempt = pending(claim("c", status=STAMPED))
    attempt.cluster.devices.delete(attempt.server.stored)
    assert await attempt.bind() is None
    assert attempt.server.patches == [("status", {"status": {"reservedFor": [BOUND]}})]


async def test_claim_that_was_created_again_in_the_cache_is_not_reserved(pending):
    attempt = pending(claim("c", status=STAMPED))
    again = claim("c", status={**STAMPED, "reservedFor": [BOUND]}, version="9", metadata={"uid": "new"})
    attempt.cluster.devices.apply(again)
    assert await attempt.bind() is None
    assert attempt.server.patches, "the request has the UID of the claim that was reserved, so that it fails"


@pytest.mark.parametrize(("conflicts", "deleted"), [(0, True), (1, True), (4, True), (5, False)])
async def test_deletion_of_a_special_claim_is_tried_five_times(special, conflicts, deleted, caplog):
    attempt = special()
    assert await attempt.bind() is None
    attempt.plugin.unreserve(attempt.state, attempt.info, "a")
    failures, patch = [CONFLICT] * conflicts, attempt.server.patch

    async def conflicting(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop(0)
        return await patch(*arguments, **options)

    async def get(*_: Any) -> Any:
        return typed(attempt.server.stored)

    attempt.server.patch, attempt.server.get = conflicting, get
    began = asyncio.get_running_loop().time()
    for work in attempt.cluster.spawned:
        await work
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.01 * min(conflicts, 4))
    assert [what for what, _ in attempt.server.requests].count("delete") == deleted
    assert [record.getMessage() for record in caplog.records] == ([] if deleted else ["cannot delete a claim"])


@pytest.mark.parametrize("method", ["release", "unreserve"])
@pytest.mark.parametrize("kind", ["pending", "special"])
async def test_reserved_devices_are_free_after_the_attempt_is_undone(request, kind, method):
    attempt = request.getfixturevalue(kind)()
    devices = attempt.state.read("DynamicResources")
    assert len(attempt.cluster.devices.claims.pending) == 1
    binding = attempt.plugin._binding
    if method == "release":
        binding.release(devices, attempt.pod)
    else:
        binding.unreserve(devices, attempt.pod, "a")
    assert attempt.cluster.devices.claims.pending == {}
    assert not attempt.in_use
    assert attempt.cluster.spawned == [], "nothing was written that must be undone"
