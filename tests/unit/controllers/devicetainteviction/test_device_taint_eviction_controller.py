"""Device taint eviction controller on the development API server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.devicetainteviction.device_taint_eviction_controller import DeviceTaintEvictionController
from kubeloop.devcluster.api import errors
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.kube.objects.device_types import DeviceTaintRule, ResourceClaim, ResourceSlice
from kubeloop.kube.objects.resources import DEVICE_TAINT_RULES, NAMESPACES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from support.apiserver.fake_apiserver import FakeApiServer
from support.comparison import replay_server
from support.objects.devices import device, device_slice, taint_rule
from support.objects.resource_claims import claim_spec, consumer, pod_body
from support.simulation.set_clock import SetClock

pytestmark = pytest.mark.virtual_time
TAINT = {"key": "example.com/broken", "effect": "NoExecute"}
ONE_MINUTE = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
MARKED = ("DeviceTaintManagerEviction", "Marking for deletion")
CANCELLED = ("DeviceTaintManagerEviction", "Cancelling deletion")


@pytest.fixture
async def controller(fake_apiserver, recorded_events, start) -> DeviceTaintEvictionController:
    controller = DeviceTaintEvictionController(structs.replace(fake_apiserver.context, events=recorded_events))
    await start(fake_apiserver.informers, controller)
    return controller


def publish(server: FakeApiServer, *taints: Any, pool: str = "a") -> None:
    """Create or replace the slice of a pool with one device, gpu-0."""
    body = device_slice(None, device("gpu-0", taints=list(taints)), pool=pool, allNodes=True)
    del body["metadata"]["resourceVersion"]
    name = body["metadata"]["name"]
    if server.store.get(RESOURCE_SLICES, "", name) is None:
        server.api.create(RESOURCE_SLICES.path(), body)
    else:
        server.api.succeed("PUT", RESOURCE_SLICES.path(name=name), body)


def start_pod(server: FakeApiServer, name: str = "web", *, pool: str = "a", tolerations: Any = (), **spec: Any) -> Any:
    """Create a bound Pod with the claim NAME-gpu, which has the device of the pool and is reserved for the Pod."""
    entry = {"name": "gpu", "resourceClaimName": f"{name}-gpu"}
    pod = server.api.create(PODS.path("ns"), pod_body(name, entry, **{"nodeName": "a", **spec}))
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": pool, "device": "gpu-0"}
    allocation = {"devices": {"results": [{**result, "tolerations": list(tolerations)}]}}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    body = {**head, "metadata": {"name": f"{name}-gpu", "namespace": "ns"}, "spec": claim_spec()}
    claim = server.api.create(RESOURCE_CLAIMS.path("ns"), body)
    reserved = [consumer(name, pod["metadata"]["uid"])]
    server.store.update(RESOURCE_CLAIMS, {**claim, "status": {"allocation": allocation, "reservedFor": reserved}})
    return pod


def is_deleted(server: FakeApiServer, name: str = "web") -> bool:
    pod = server.store.get(PODS, "ns", name)
    return pod is None or "deletionTimestamp" in pod["metadata"]


def messages(recorded_events: Any) -> list[tuple[str, str]]:
    return [(event.reason, event.message) for event in recorded_events.events]


async def test_tainted_device_evicts_its_pod(fake_apiserver, controller, recorded_events):
    publish(fake_apiserver)
    publish(fake_apiserver, pool="b")
    start_pod(fake_apiserver)
    start_pod(fake_apiserver, "other", pool="b")
    await asyncio.sleep(5)
    publish(fake_apiserver, TAINT)
    await asyncio.sleep(1)
    assert is_deleted(fake_apiserver)
    assert not is_deleted(fake_apiserver, "other")
    pod = fake_apiserver.store.get(PODS, "ns", "web")
    (condition,) = [entry for entry in pod["status"]["conditions"] if entry["type"] == "DisruptionTarget"]
    assert (condition["status"], condition["reason"]) == ("True", "DeletionByDeviceTaintManager")
    assert "observedGeneration" not in condition
    assert messages(recorded_events) == [MARKED]
    assert fake_apiserver.metrics.values("device_taint_eviction_controller_pod_deletion") == {
        "s_total": 1,
        "_duration_seconds_count": 1,
    }
    (delete,) = [body for method, _, body in fake_apiserver.requests if method == "DELETE"]
    assert delete["preconditions"]["uid"] == pod["metadata"]["uid"]


async def test_pod_is_evicted_when_its_toleration_ends(fake_apiserver, controller):
    publish(fake_apiserver, TAINT)
    start_pod(fake_apiserver, tolerations=[ONE_MINUTE])
    start_pod(fake_apiserver, "tolerant", tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    await asyncio.sleep(55)
    assert not is_deleted(fake_apiserver)
    await asyncio.sleep(10)
    assert is_deleted(fake_apiserver)
    assert not is_deleted(fake_apiserver, "tolerant")


@pytest.mark.parametrize("ended_by", ["taint", "slice", "reservation", "allocation", "claim"])
async def test_eviction_is_cancelled_when_its_reason_ends(fake_apiserver, controller, recorded_events, ended_by):
    publish(fake_apiserver, TAINT)
    start_pod(fake_apiserver, tolerations=[ONE_MINUTE])
    await asyncio.sleep(30)
    claim = fake_apiserver.store.get(RESOURCE_CLAIMS, "ns", "web-gpu")
    if ended_by == "taint":
        publish(fake_apiserver)
    elif ended_by == "slice":
        fake_apiserver.api.succeed("DELETE", RESOURCE_SLICES.path(name="a-gpu.example.com"))
    elif ended_by == "claim":
        fake_apiserver.store.delete(RESOURCE_CLAIMS, "ns", "web-gpu")
    else:
        status = {"allocation": claim["status"]["allocation"]} if ended_by == "reservation" else {}
        fake_apiserver.store.update(RESOURCE_CLAIMS, {**claim, "status": status})
    await asyncio.sleep(300)
    assert not is_deleted(fake_apiserver)
    assert messages(recorded_events) == [CANCELLED]


async def test_pod_is_evicted_later_when_its_taint_is_set_anew(fake_apiserver, controller):
    publish(fake_apiserver, TAINT)
    start_pod(fake_apiserver, tolerations=[ONE_MINUTE])
    await asyncio.sleep(30)
    publish(fake_apiserver, {**TAINT, "timeAdded": rfc3339(fake_apiserver.clock.now())})
    await asyncio.sleep(55)
    assert not is_deleted(fake_apiserver)
    await asyncio.sleep(10)
    assert is_deleted(fake_apiserver)


async def test_deleted_pod_ends_its_eviction_without_an_event(fake_apiserver, controller, recorded_events):
    publish(fake_apiserver, TAINT)
    start_pod(fake_apiserver, tolerations=[ONE_MINUTE])
    await asyncio.sleep(5)
    fake_apiserver.store.delete(PODS, "ns", "web")
    await asyncio.sleep(300)
    assert messages(recorded_events) == []


async def test_pod_is_evicted_when_it_is_bound(fake_apiserver, controller):
    publish(fake_apiserver, TAINT)
    pod = start_pod(fake_apiserver, nodeName="")
    await asyncio.sleep(60)
    assert not is_deleted(fake_apiserver)
    fake_apiserver.store.update(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "a"}})
    await asyncio.sleep(1)
    assert is_deleted(fake_apiserver)


async def test_claim_that_is_reserved_later_evicts_its_pod(fake_apiserver, controller):
    publish(fake_apiserver, TAINT)
    start_pod(fake_apiserver)
    claim = fake_apiserver.store.get(RESOURCE_CLAIMS, "ns", "web-gpu")
    fake_apiserver.store.update(RESOURCE_CLAIMS, {**claim, "status": {}})
    await asyncio.sleep(60)
    assert not is_deleted(fake_apiserver)
    later = fake_apiserver.store.get(RESOURCE_CLAIMS, "ns", "web-gpu")
    fake_apiserver.store.update(RESOURCE_CLAIMS, {**later, "status": claim["status"]})
    await asyncio.sleep(1)
    assert is_deleted(fake_apiserver)


async def test_failed_eviction_is_retried(fake_apiserver, controller, recorded_events):
    publish(fake_apiserver)
    start_pod(fake_apiserver)
    fake_apiserver.transport.reject = lambda method, path: (
        errors.forbidden(PODS, "", "no") if method == "DELETE" else None
    )
    publish(fake_apiserver, TAINT)
    await asyncio.sleep(30)
    assert not is_deleted(fake_apiserver)
    fake_apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(1000)
    assert is_deleted(fake_apiserver)
    patches = [path for path in fake_apiserver.written("PATCH") if path.startswith(PODS.path("ns", "web"))]
    assert len(patches) == 1  # the condition is already set when the deletion is retried


async def test_pod_of_the_same_name_is_not_evicted_for_the_former_one(fake_apiserver, controller):
    publish(fake_apiserver, TAINT)
    start_pod(fake_apiserver, tolerations=[ONE_MINUTE])
    await asyncio.sleep(30)
    fake_apiserver.transport.watch_delay_seconds = 100.0
    fake_apiserver.store.delete(PODS, "ns", "web")
    fake_apiserver.api.create(PODS.path("ns"), pod_body("web", nodeName="a", resourceClaims=[]))
    await asyncio.sleep(300)
    assert not is_deleted(fake_apiserver)
    assert fake_apiserver.metrics.values("device_taint_eviction_controller_pod_deletions_total") == {"": 0}


async def test_taint_of_the_past_evicts_at_once_after_a_restart(fake_apiserver, recorded_events, start):
    publish(fake_apiserver, {**TAINT, "timeAdded": rfc3339(fake_apiserver.clock.now())})
    start_pod(fake_apiserver, tolerations=[ONE_MINUTE])
    await asyncio.sleep(120)
    await start(fake_apiserver.informers, DeviceTaintEvictionController(fake_apiserver.context))
    await asyncio.sleep(1)
    assert is_deleted(fake_apiserver)


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def rule_server(recorded_events, start) -> FakeApiServer:
    """A server that serves DeviceTaintRules, and the controller on it."""
    server = FakeApiServer(gates=FeatureGates({"DRADeviceTaintRules": True}))
    server.add(NAMESPACES, "ns")
    await start(
        server.informers, DeviceTaintEvictionController(structs.replace(server.context, events=recorded_events))
    )
    return server


def create_rule(server: FakeApiServer, name: str = "rule", effect: str = "NoExecute", **selector: str) -> None:
    body = taint_rule(name, effect, **selector)
    del body["metadata"]["uid"]
    server.api.create(DEVICE_TAINT_RULES.path(), body)


def rule_condition(server: FakeApiServer, name: str = "rule") -> tuple[str, str, str]:
    """Return status, reason and message of the only condition."""
    (condition,) = server.store.get(DEVICE_TAINT_RULES, "", name)["status"]["conditions"]
    assert condition["type"] == "EvictionInProgress"
    return condition["status"], condition["reason"], condition["message"]


async def test_rule_evicts_the_pods_of_the_devices_that_it_selects(rule_server):
    for pool, name in (("a", "web"), ("b", "other")):
        publish(rule_server, pool=pool)
        start_pod(rule_server, name, pool=pool)
    start_pod(rule_server, "tolerant", tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    create_rule(rule_server, pool="a")
    await asyncio.sleep(1)
    assert [is_deleted(rule_server, name) for name in ("web", "other", "tolerant")] == [True, False, False]
    await asyncio.sleep(30)
    message = "1 pod evicted since starting the controller."
    assert rule_condition(rule_server) == ("False", "Completed", message)
    managers = rule_server.store.get(DEVICE_TAINT_RULES, "", "rule")["metadata"]["managedFields"]
    assert ("device-taint-eviction-controller", "Apply", "status") in {
        (entry["manager"], entry["operation"], entry.get("subresource", "")) for entry in managers
    }


async def test_status_counts_the_pods_that_will_be_evicted(rule_server):
    publish(rule_server)
    for name in ("web", "other"):
        start_pod(rule_server, name, tolerations=[ONE_MINUTE])
    await asyncio.sleep(1)
    create_rule(rule_server)
    await asyncio.sleep(1)
    pending = "2 pods need to be evicted in 1 namespace."
    assert rule_condition(rule_server) == ("True", "PodsPendingEviction", pending)
    await asyncio.sleep(100)
    assert rule_condition(rule_server)[1:] == ("Completed", "2 pods evicted since starting the controller.")


async def test_changed_rule_still_counts_the_pods_that_it_has_evicted(rule_server):
    publish(rule_server)
    start_pod(rule_server)
    create_rule(rule_server)
    await asyncio.sleep(30)
    rule = rule_server.store.get(DEVICE_TAINT_RULES, "", "rule")
    spec = {**rule["spec"], "taint": {**rule["spec"]["taint"], "value": "changed"}}
    rule_server.api.succeed("PUT", DEVICE_TAINT_RULES.path(name="rule"), {**rule, "spec": spec})
    await asyncio.sleep(30)
    assert rule_condition(rule_server)[2] == "1 pod evicted since starting the controller."


async def test_late_status_of_a_former_leader_is_corrected(rule_server):
    publish(rule_server)
    create_rule(rule_server)
    await asyncio.sleep(1)
    current = rule_condition(rule_server)
    rule = rule_server.store.get(DEVICE_TAINT_RULES, "", "rule")
    (condition,) = rule["status"]["conditions"]
    late = {**condition, "status": "True", "reason": "PodsPendingEviction", "message": "1 pod"}
    rule_server.store.update(DEVICE_TAINT_RULES, {**rule, "status": {"conditions": [late]}})
    await asyncio.sleep(20)
    assert rule_condition(rule_server) == current


async def test_status_of_a_rule_is_written_at_most_every_10_seconds(rule_server):
    publish(rule_server)
    create_rule(rule_server)
    for number in range(20):
        start_pod(rule_server, f"web-{number}", tolerations=[ONE_MINUTE])
        await asyncio.sleep(1)
    await asyncio.sleep(20)
    assert rule_condition(rule_server)[2] == "20 pods need to be evicted in 1 namespace."
    writes = [path for path in rule_server.written("PATCH") if "devicetaintrules" in path]
    assert 2 <= len(writes) <= 5


async def test_deleted_or_changed_rule_cancels_evictions(rule_server, recorded_events):
    publish(rule_server)
    start_pod(rule_server, tolerations=[ONE_MINUTE])
    create_rule(rule_server)
    await asyncio.sleep(30)
    path = DEVICE_TAINT_RULES.path(name="rule")
    rule_server.api.succeed("PATCH", path, {"spec": {"taint": {"effect": "NoSchedule"}}})
    await asyncio.sleep(1)
    assert rule_condition(rule_server) == (
        "False",
        "OtherEffect",
        "Eviction only happens for the NoExecute effect.",
    )
    rule_server.api.succeed("PATCH", path, {"spec": {"taint": {"effect": "NoExecute"}}})
    await asyncio.sleep(50)
    assert not is_deleted(rule_server)  # the toleration counts from the new time of the effect
    rule_server.api.succeed("DELETE", path)
    await asyncio.sleep(300)
    assert not is_deleted(rule_server)
    assert messages(recorded_events) == [CANCELLED, CANCELLED]


async def test_rule_without_effect_shows_what_it_would_evict(rule_server):
    publish(rule_server)
    publish(rule_server, pool="b")
    start_pod(rule_server)
    start_pod(rule_server, "tolerant", tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    await asyncio.sleep(1)
    create_rule(rule_server, effect="None", driver="gpu.example.com")
    await asyncio.sleep(1)
    status, reason, message = rule_condition(rule_server)
    assert (status, reason) == ("False", "NoEffect")
    assert message.startswith(
        "2 published devices selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace"
    )
    await asyncio.sleep(60)
    assert not is_deleted(rule_server)


async def test_rule_of_the_same_name_starts_its_own_count(rule_server):
    publish(rule_server)
    start_pod(rule_server)
    create_rule(rule_server)
    await asyncio.sleep(30)
    assert rule_condition(rule_server)[1] == "Completed"
    rule_server.api.succeed("DELETE", DEVICE_TAINT_RULES.path(name="rule"))
    create_rule(rule_server)
    await asyncio.sleep(30)
    assert rule_condition(rule_server) == ("False", "NotStarted", "")


async def test_taint_evicts_the_pods_of_a_group_that_shares_the_claim(start):
    gates = FeatureGates({"GenericWorkload": True, "DRAWorkloadResourceClaims": True})
    server = FakeApiServer(gates=gates)
    server.add(NAMESPACES, "ns")
    await start(server.informers, DeviceTaintEvictionController(server.context))
    publish(server)
    for name in ("web", "other"):
        start_pod(server, name, schedulingGroup={"podGroupName": "workers"})
    claim = server.store.get(RESOURCE_CLAIMS, "ns", "web-gpu")
    reserved = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "workers", "uid": "group-uid"}
    server.store.update(RESOURCE_CLAIMS, {**claim, "status": {**claim["status"], "reservedFor": [reserved]}})
    pod = server.store.get(PODS, "ns", "other")
    entry = {"name": "gpu", "resourceClaimName": "web-gpu"}
    server.store.update(PODS, {**pod, "spec": {**pod["spec"], "resourceClaims": [entry]}})
    publish(server, TAINT)
    await asyncio.sleep(1)
    assert [is_deleted(server, name) for name in ("web", "other")] == [True, True]


async def test_pod_that_its_user_deletes_is_no_longer_counted(rule_server):
    publish(rule_server)
    for name in ("web", "other"):
        start_pod(rule_server, name, tolerations=[{**ONE_MINUTE, "tolerationSeconds": 3600}])
    create_rule(rule_server)
    await asyncio.sleep(30)
    assert rule_condition(rule_server)[2] == "2 pods need to be evicted in 1 namespace."
    rule_server.store.delete(PODS, "ns", "other")
    await asyncio.sleep(30)
    assert rule_condition(rule_server)[2] == "1 pod needs to be evicted in 1 namespace."


async def test_pod_whose_deletion_was_not_confirmed_is_no_longer_counted(rule_server):
    publish(rule_server)
    start_pod(rule_server, tolerations=[ONE_MINUTE])
    create_rule(rule_server)
    await asyncio.sleep(30)

    def delete_first(method: str, path: str) -> Any:
        if method != "DELETE":
            return None
        if rule_server.store.get(PODS, "ns", "web") is not None:
            rule_server.store.delete(PODS, "ns", "web")
        return errors.not_found(PODS, "web")

    rule_server.transport.reject = delete_first
    await asyncio.sleep(100)
    assert rule_condition(rule_server) == ("False", "NotStarted", "")


async def test_evicted_pod_whose_end_the_cache_shows_late_is_no_longer_counted(rule_server):
    publish(rule_server)
    start_pod(rule_server)
    await asyncio.sleep(1)
    create_rule(rule_server)
    rule_server.transport.watch_delay_seconds = 25.0
    await asyncio.sleep(30)
    rule_server.transport.watch_delay_seconds = 0.0
    await asyncio.sleep(60)
    assert rule_condition(rule_server)[1] == "Completed"


# --- events -----------------------------------------------------------------------------------------------------------


def stored_pod(uid: str = "u", version: str = "1", *, node: str = "a", deleted: bool = False, claim: str = "") -> Pod:
    """Return a Pod with the claim web-gpu, named in its status as `claim` if that is given."""
    entry = {"name": "gpu"} | ({"resourceClaimTemplateName": "t"} if claim else {"resourceClaimName": "web-gpu"})
    metadata = {"name": "web", "namespace": "ns", "uid": uid, "resourceVersion": version}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": claim}]} if claim else {}
    return convert(Pod, {"metadata": metadata, "spec": {"nodeName": node, "resourceClaims": [entry]}, "status": status})


def reserved_claim(*uids: str, allocated: bool = True) -> ResourceClaim:
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}
    status: dict[str, Any] = {"reservedFor": [consumer("web", uid) for uid in uids]}
    if allocated:
        status["allocation"] = {"devices": {"results": [result]}}
    metadata = {"name": "web-gpu", "namespace": "ns", "uid": "claim"}
    return convert(ResourceClaim, {"metadata": metadata, "spec": claim_spec(), "status": status})


RULE = "rule:broken"


@pytest.mark.parametrize(
    ("claim", "before", "verb", "pod", "keys"),
    [
        pytest.param(reserved_claim("u"), [], "ADDED", stored_pod(), ["pod:ns/web/u", RULE], id="added"),
        pytest.param(reserved_claim("other"), [], "ADDED", stored_pod(), [], id="reserved for another"),
        pytest.param(reserved_claim("u", allocated=False), [], "ADDED", stored_pod(), [], id="not allocated"),
        pytest.param(reserved_claim("u"), [], "ADDED", stored_pod(node=""), [], id="not bound"),
        pytest.param(
            reserved_claim("u"),
            [stored_pod(node="")],
            "MODIFIED",
            stored_pod(version="2"),
            ["pod:ns/web/u", RULE],
            id="bound",
        ),
        pytest.param(reserved_claim("u"), [stored_pod()], "MODIFIED", stored_pod(version="2"), [], id="unchanged"),
        pytest.param(
            reserved_claim("u"),
            [stored_pod()],
            "MODIFIED",
            stored_pod(version="2", deleted=True),
            [RULE],
            id="ends",
        ),
        pytest.param(reserved_claim("u"), [stored_pod()], "DELETED", stored_pod(version="2"), [RULE], id="deleted"),
        pytest.param(
            reserved_claim("u", "v"),
            [stored_pod()],
            "MODIFIED",
            stored_pod("v", "2"),
            [RULE, "pod:ns/web/v", RULE],
            id="created again under its name",
        ),
    ],
)
async def test_pod_event_plans_its_eviction(claim, before, verb, pod, keys):
    """A rule taints the device of the claim; keys: of the queue, and those of rules for their statuses."""
    queue, api = replay_server.RecordingQueue(), replay_server.ReplayServer({"state": {}})
    context = replay_server.replay_context(api, SetClock(datetime(2026, 1, 1, tzinfo=UTC)), queue)
    gates = FeatureGates({"DRADeviceTaintRules": True})
    controller = DeviceTaintEvictionController(structs.replace(context, feature_gates=gates))
    informer = context.informers.informer
    rule = taint_rule("broken", driver="gpu.example.com")
    rule["spec"]["taint"]["timeAdded"] = "2026-01-01T00:00:00Z"
    informer(RESOURCE_SLICES).apply("ADDED", convert(ResourceSlice, device_slice(None, device("gpu-0"), pool="a")), 0)
    informer(DEVICE_TAINT_RULES).apply("ADDED", convert(DeviceTaintRule, rule), 0)
    informer(RESOURCE_CLAIMS).apply("ADDED", claim, 0)
    for stored in before:
        informer(PODS).apply("ADDED", stored, 0)
    queue.calls.clear()
    informer(PODS).apply(verb, pod, 0)
    assert [call["key"] for call in queue.calls] == keys
    is_planned = verb != "DELETED" and (bool(before) or bool(keys))
    assert list(controller._planned) == ([pod.metadata.uid] if is_planned else [])
