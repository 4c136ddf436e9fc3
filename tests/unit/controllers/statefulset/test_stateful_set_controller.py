"""The StatefulSet controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kubeloop.controllers.statefulset.stateful_set_controller import StatefulSetController
from kubeloop.devcluster.api import errors
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Pod, StatefulSet, convert
from kubeloop.kube.objects.resources import (
    CONTROLLER_REVISIONS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
)
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from kubeloop.tracing.spans.reconcile_record import ReconcileRecord
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION
from support.apiserver.fake_apiserver import FakeApiServer
from support.comparison import replay_server
from support.objects.stateful_sets import StatefulSetClient, stateful_set
from support.simulation.set_clock import SetClock

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def web(fake_apiserver, start):
    await start(fake_apiserver.informers, StatefulSetController(fake_apiserver.context))
    return StatefulSetClient(fake_apiserver)


async def settle(seconds: float = 1.0) -> None:
    await asyncio.sleep(seconds)


async def run_all(web: StatefulSetClient, replicas: int) -> None:
    """Make Pods ready, one after the other."""
    for _ in range(replicas):
        await settle()
        web.run()
    await settle()


async def test_pods_are_created_in_order_with_their_identity(web):
    web.create(replicas=3)
    await settle()
    assert web.pods == ["web-0"]
    web.run()
    await settle()
    assert web.pods == ["web-0", "web-1"]
    web.run("web-1", ready="False")
    await settle()
    assert web.pods == ["web-0", "web-1"], "web-1 is not ready"
    web.run()
    await settle()
    web.run()
    await settle()
    assert web.pods == ["web-0", "web-1", "web-2"]
    pod = web.pod("web-2")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-2", "web")
    (revision,) = web.server.names(CONTROLLER_REVISIONS)
    assert pod["metadata"]["labels"] == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-2",
        "apps.kubernetes.io/pod-index": "2",
        "controller-revision-hash": revision,
    }
    assert web.status == {
        "observedGeneration": 1,
        "replicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "currentReplicas": 3,
        "updatedReplicas": 3,
        "currentRevision": revision,
        "updateRevision": revision,
        "collisionCount": 0,
    }
    assert web.events == [f"SuccessfulCreate: Create Pod web-{n} in StatefulSet web successful" for n in range(3)]


async def test_parallel_management_creates_and_deletes_all_pods_at_once(web):
    web.create(replicas=4, podManagementPolicy="Parallel")
    await settle()
    assert web.pods == ["web-0", "web-1", "web-2", "web-3"]
    web.change(replicas=1)
    await settle()
    assert web.pods == ["web-0"]


async def test_scale_down_deletes_highest_ordinal_first(web):
    web.create(replicas=3)
    await run_all(web, 3)
    web.run("web-0", ready="False")
    web.change(replicas=1)
    await settle()
    assert web.pods == ["web-0", "web-1", "web-2"], "web-0 is not ready"
    web.run()
    await settle()
    assert web.pods == ["web-0"]
    deleted = [event for event in web.events if event.startswith("SuccessfulDelete")]
    assert deleted == [f"SuccessfulDelete: Delete Pod web-{n} in StatefulSet web successful" for n in (2, 1)]


async def test_ordinals_start_where_the_spec_says(web):
    web.create(replicas=2, ordinals={"start": 5})
    await run_all(web, 2)
    assert web.pods == ["web-5", "web-6"]
    web.change(ordinals={"start": 6})
    await run_all(web, 2)
    assert web.pods == ["web-6", "web-7"]


async def test_rolling_update_replaces_pods_from_the_highest_ordinal(web):
    web.create(replicas=2)
    await run_all(web, 2)
    web.set_image("app:2")
    await settle()
    assert web.images == {"web-0": "app:1", "web-1": "app:2"}
    first, second = web.status["currentRevision"], web.status["updateRevision"]
    assert first != second
    assert (web.status["currentReplicas"], web.status["updatedReplicas"]) == (1, 1)
    await run_all(web, 1)
    assert web.images == {"web-0": "app:2", "web-1": "app:2"}
    await run_all(web, 1)
    assert web.status["currentRevision"] == web.status["updateRevision"] == second
    assert web.status["currentReplicas"] == 2


async def test_partition_keeps_lower_ordinals_at_the_current_revision(web):
    web.create(replicas=3, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
    await run_all(web, 3)
    web.set_image("app:2")
    await run_all(web, 2)
    assert web.images == {"web-0": "app:1", "web-1": "app:1", "web-2": "app:2"}
    web.server.delete(PODS, "web-1")
    await run_all(web, 1)
    assert web.images["web-1"] == "app:1", "a new Pod below the partition has the current revision"
    web.change(updateStrategy={"rollingUpdate": {"partition": 0}})
    await run_all(web, 3)
    assert set(web.images.values()) == {"app:2"}


async def test_pod_below_the_partition_has_the_current_revision_that_the_cache_lost(web):
    web.create(replicas=2, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
    await run_all(web, 2)
    web.set_image("app:2")
    await settle()
    revisions = web.server.informers.informer(CONTROLLER_REVISIONS)
    revisions.apply("DELETED", revisions.store[f"ns/{web.status['currentRevision']}"], 0)
    web.server.delete(PODS, "web-1")
    await run_all(web, 1)
    assert web.images == {"web-0": "app:1", "web-1": "app:1"}


async def test_pod_below_the_partition_has_the_new_revision_if_the_current_one_is_deleted(web):
    web.create(replicas=2, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
    await run_all(web, 2)
    web.set_image("app:2")
    await settle()
    web.server.delete(CONTROLLER_REVISIONS, web.status["currentRevision"])
    web.server.delete(PODS, "web-1")
    await run_all(web, 1)
    assert web.images == {"web-0": "app:1", "web-1": "app:2"}


async def test_status_is_written_after_a_conflict_with_another_writer(web):
    conflicts: list[str] = []

    def reject(method: str, path: str) -> errors.StatusError | None:
        if path.endswith("/web/status") and not conflicts:
            conflicts.append(path)
            web.change(minReadySeconds=0)
            return errors.conflict(STATEFUL_SETS, "web")
        return None

    web.create(replicas=1)
    web.server.transport.reject = reject
    await run_all(web, 1)
    assert conflicts
    assert web.status["readyReplicas"] == 1
    assert not any(web.server.metrics.values("kubeloop_reconcile_errors").values())


async def test_reconcile_links_to_the_request_that_created_the_stateful_set(fake_apiserver, start):
    records: list[ReconcileRecord] = []
    traces = ReconcileRecorder(
        clock=fake_apiserver.clock, rng=random.Random(1), on_finished=lambda record, sampled: records.append(record)
    )
    await start(fake_apiserver.informers, StatefulSetController(replace(fake_apiserver.context, traces=traces)))
    cause = f"00-{1:032x}-{2:016x}-01"
    body = stateful_set(replicas=1)
    body["metadata"]["annotations"] = {TRACEPARENT_ANNOTATION: cause}
    fake_apiserver.api.create(STATEFUL_SETS.path("ns"), body)
    await settle()
    assert (cause, "cause") in records[0].links


async def test_on_delete_updates_only_deleted_pods(web):
    web.create(replicas=2, updateStrategy={"type": "OnDelete"})
    await run_all(web, 2)
    web.set_image("app:2")
    await settle()
    assert set(web.images.values()) == {"app:1"}
    web.server.delete(PODS, "web-0")
    await run_all(web, 1)
    assert web.images == {"web-0": "app:2", "web-1": "app:1"}


async def test_broken_update_waits_until_its_pod_is_deleted_after_the_rollback(web):
    web.create(replicas=2)
    await run_all(web, 2)
    web.set_image("broken")
    await settle()
    web.set_image("app:1")
    await settle(5)
    assert web.images == {"web-0": "app:1", "web-1": "broken"}, "forced rollback: a user deletes the Pod"
    web.server.delete(PODS, "web-1")
    await run_all(web, 1)
    assert set(web.images.values()) == {"app:1"}


async def test_rollback_gives_the_old_revision_a_new_number(web):
    web.create(replicas=1)
    await run_all(web, 1)
    for image in ("app:2", "app:1"):
        web.set_image(image)
        await run_all(web, 2)
    revisions = {obj["metadata"]["name"]: obj["revision"] for obj in web.server.objects(CONTROLLER_REVISIONS)}
    assert sorted(revisions.values()) == [2, 3]
    assert revisions[web.status["currentRevision"]] == 3


async def test_old_revisions_beyond_the_history_limit_are_deleted(web):
    web.create(replicas=1, revisionHistoryLimit=1)
    await run_all(web, 1)
    for number in range(2, 6):
        web.set_image(f"app:{number}")
        await run_all(web, 2)
    assert sorted(obj["revision"] for obj in web.server.objects(CONTROLLER_REVISIONS)) == [4, 5]


async def test_revision_name_collision_increments_the_collision_count(web):
    web.create(replicas=0)
    await settle()
    (revision,) = web.server.objects(CONTROLLER_REVISIONS)
    path = CONTROLLER_REVISIONS.path("ns", revision["metadata"]["name"])
    web.server.api.succeed("DELETE", path)
    other = {"metadata": {"name": revision["metadata"]["name"]}, "data": {"other": True}, "revision": 1}
    web.server.api.create(CONTROLLER_REVISIONS.path("ns"), other)
    web.change(replicas=1)
    await settle()
    assert web.status["collisionCount"] == 1
    assert web.status["updateRevision"] != revision["metadata"]["name"]


@pytest.mark.parametrize(
    ("gate", "revisions"),
    [pytest.param(True, 1, id="gate on: same revision"), pytest.param(False, 2, id="gate off: new revision")],
)
async def test_revision_without_a_defaulted_field_is_equal(start, gate, revisions):
    gates = FeatureGates({"StatefulSetSemanticRevisionComparison": gate})
    server = FakeApiServer(gates=gates)
    server.add(NAMESPACES, "ns")
    web = StatefulSetClient(server)
    web.create(replicas=0)
    (sts,) = server.objects(STATEFUL_SETS)
    template = {**sts["spec"]["template"], "spec": {"containers": [{"name": "main", "image": "app:1"}]}}
    body = {
        "metadata": {"name": "web-old", "labels": {"app": "web"}},
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": 1,
    }
    text = msgspec.json.encode(body, order="sorted").decode()  # as controllers write it
    server.api.create(CONTROLLER_REVISIONS.path("ns"), text)
    await start(server.informers, StatefulSetController(server.context))
    assert len(server.names(CONTROLLER_REVISIONS)) == revisions
    server.transport.break_watches("statefulsets")
    server.api.succeed("PATCH", STATEFUL_SETS.path("ns", "web"), {"metadata": {"labels": {"changed": "yes"}}})
    await settle(60)
    assert len(server.names(CONTROLLER_REVISIONS)) == revisions
    (adopted,) = (obj for obj in server.objects(CONTROLLER_REVISIONS) if obj["metadata"]["name"] == "web-old")
    assert adopted["metadata"]["ownerReferences"][0]["uid"] == sts["metadata"]["uid"]


async def test_max_unavailable_replaces_several_pods_at_once(start):
    server = FakeApiServer(gates=FeatureGates({"MaxUnavailableStatefulSet": True}))
    server.add(NAMESPACES, "ns")
    web = StatefulSetClient(server)
    await start(server.informers, StatefulSetController(server.context))
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}}
    web.create(replicas=4, podManagementPolicy="Parallel", updateStrategy=strategy)
    await run_all(web, 1)
    web.set_image("app:2")
    await settle()
    assert web.images == {"web-0": "app:1", "web-1": "app:1", "web-2": "app:2", "web-3": "app:2"}
    await run_all(web, 2)
    assert set(web.images.values()) == {"app:2"}


async def test_min_ready_seconds_delays_the_next_pod(web):
    web.create(replicas=2, minReadySeconds=30)
    await settle()
    web.run()
    await settle(28)
    assert web.pods == ["web-0"]
    assert (web.status["readyReplicas"], web.status["availableReplicas"]) == (1, 0)
    await settle(4)
    assert web.pods == ["web-0", "web-1"]
    assert web.status["availableReplicas"] == 1


async def test_failed_and_succeeded_pods_are_replaced(web):
    web.create(replicas=1)
    for phase in ("Failed", "Succeeded"):
        await run_all(web, 1)
        uid = web.pod("web-0")["metadata"]["uid"]
        web.run(phase=phase, ready="False")
        await settle()
        assert web.pod("web-0")["metadata"]["uid"] != uid


async def test_claims_are_created_before_their_pod_and_kept(web):
    web.create(replicas=1, claims=("data", "logs"), pod={"volumes": [{"name": "tmp", "emptyDir": {}}]})
    await settle()
    assert sorted(web.server.names(PERSISTENT_VOLUME_CLAIMS)) == ["data-web-0", "logs-web-0"]
    volumes = {volume["name"]: volume for volume in web.pod("web-0")["spec"]["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"] == {"claimName": "data-web-0"}
    assert "emptyDir" in volumes["tmp"]
    claim = web.server.store.get(PERSISTENT_VOLUME_CLAIMS, "ns", "data-web-0")
    assert claim["metadata"]["labels"] == {"app": "web"}
    assert "ownerReferences" not in claim["metadata"]
    posted = web.server.written("POST")
    assert posted.index(PODS.path("ns")) > posted.index(PERSISTENT_VOLUME_CLAIMS.path("ns"))
    assert "SuccessfulCreate: Create Claim data-web-0 Pod web-0 in StatefulSet web success" in web.events
    web.change(replicas=0)
    await settle()
    assert web.pods == []
    assert len(web.server.names(PERSISTENT_VOLUME_CLAIMS)) == 2


async def test_pending_pod_gets_a_deleted_claim_again(web):
    web.create(replicas=1, claims=("data",))
    await settle()
    path = PERSISTENT_VOLUME_CLAIMS.path("ns", "data-web-0")
    web.server.api.succeed("PATCH", path, {"metadata": {"finalizers": None}})
    web.server.api.succeed("DELETE", path)
    assert web.server.names(PERSISTENT_VOLUME_CLAIMS) == []
    web.run(phase="Pending", ready="False")
    await settle()
    assert web.server.names(PERSISTENT_VOLUME_CLAIMS) == ["data-web-0"]


async def test_retention_policy_sets_and_changes_owners_of_claims(web):
    def owners() -> dict[str, list[str]]:
        return {
            obj["metadata"]["name"]: [owner["kind"] for owner in obj["metadata"].get("ownerReferences", ())]
            for obj in web.server.objects(PERSISTENT_VOLUME_CLAIMS)
        }

    policy = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    web.create(replicas=2, claims=("data",), persistentVolumeClaimRetentionPolicy=policy)
    await run_all(web, 2)
    assert owners() == {"data-web-0": ["StatefulSet"], "data-web-1": ["StatefulSet"]}
    web.change(replicas=1)
    await settle()
    assert owners() == {"data-web-0": ["StatefulSet"], "data-web-1": ["Pod"]}
    web.change(replicas=2)
    await settle()
    assert web.pods == ["web-0"], "the claim of the former web-1 is to be deleted first"
    path = PERSISTENT_VOLUME_CLAIMS.path("ns", "data-web-1")
    web.server.api.succeed("PATCH", path, {"metadata": {"finalizers": None}})
    web.server.api.succeed("DELETE", path)
    web.change(persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain"})
    await run_all(web, 1)
    assert owners() == {"data-web-0": [], "data-web-1": []}


async def test_orphan_is_adopted_by_name_and_other_pods_are_released(web):
    spec = {"containers": [{"name": "main", "image": "app:1"}]}
    for name in ("web-0", "other-1"):
        body = {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}
        web.server.api.create(PODS.path("ns"), body)
    web.run()
    web.create(replicas=1)
    await settle()

    def owners(name: str) -> list[str]:
        return [owner["name"] for owner in web.pod(name)["metadata"].get("ownerReferences", ())]

    assert (owners("web-0"), owners("other-1")) == (["web"], [])
    path = PODS.path("ns", "web-0")
    web.server.api.succeed("PATCH", path, {"metadata": {"labels": {"app": "debug"}}})
    await settle()
    assert owners("web-0") == []


async def test_orphan_that_is_created_later_is_adopted(web):
    web.create(replicas=0)
    await settle()
    spec = {"containers": [{"name": "main", "image": "app:1"}]}
    body = {"metadata": {"name": "web-0", "labels": {"app": "web"}}, "spec": spec}
    web.server.api.create(PODS.path("ns"), body)
    await settle()
    assert PODS.path("ns", "web-0") in web.server.written("PATCH")
    assert PODS.path("ns", "web-0") in web.server.written("DELETE")  # it is more than zero replicas


async def test_pod_gets_its_identity_label_back(web):
    web.create(replicas=1)
    await run_all(web, 1)
    label = "statefulset.kubernetes.io/pod-name"
    body: dict[str, Any] = {"metadata": {"labels": {label: None}}}
    web.server.api.succeed("PATCH", PODS.path("ns", "web-0"), body)
    await settle()
    assert web.pod("web-0")["metadata"]["labels"][label] == "web-0"
    assert "SuccessfulUpdate: Update Pod web-0 in StatefulSet web successful" in web.events


async def test_deleted_stateful_set_writes_no_pods(web):
    web.create(replicas=2)
    await settle()
    path = STATEFUL_SETS.path("ns", "web")
    web.server.api.succeed("DELETE", path, {"propagationPolicy": "Foreground"})
    web.server.delete(PODS, "web-0")
    await settle()
    assert web.pods == []
    assert web.status["replicas"] == 0


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
async def test_failed_pod_creation_has_an_event_and_is_retried(web, policy):
    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.forbidden(PODS, "web-0", "no more pods") if method == "POST" and path.endswith("/pods") else None

    web.server.transport.reject = reject
    web.create(replicas=1, podManagementPolicy=policy)
    await settle()
    assert web.events[0].startswith("FailedCreate: Create Pod web-0 in StatefulSet web failed error: ")
    assert web.status["replicas"] == 0
    web.server.transport.reject = lambda method, path: None
    await settle(10)
    assert web.pods == ["web-0"]


async def test_sync_waits_until_caches_show_own_writes(web):
    web.server.transport.watch_delay_seconds = 5.0
    web.create(replicas=3, podManagementPolicy="Parallel")
    await settle(30)
    assert web.pods == ["web-0", "web-1", "web-2"]
    assert len([path for path in web.server.written("POST") if path == PODS.path("ns")]) == 3


async def test_binding_of_a_pod_starts_no_sync(fake_apiserver, start, monkeypatch):
    controller = StatefulSetController(fake_apiserver.context)
    await start(fake_apiserver.informers, controller)
    web = StatefulSetClient(fake_apiserver)
    web.create(replicas=1)
    await settle()
    enqueued: list[str] = []
    monkeypatch.setattr(controller.queue, "add", lambda key, reason: enqueued.append(reason))
    path = PODS.path("ns", "web-0")
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    web.server.api.succeed("PATCH", PODS.path("ns", "web-0", "status"), {"status": {"conditions": [unschedulable]}})
    await settle()
    assert enqueued == ["pod changed"]
    body = {"metadata": {"name": "web-0"}, "target": {"kind": "Node", "name": "n"}}
    web.server.api.succeed("POST", f"{path}/binding", body)
    web.server.api.succeed("PATCH", path, {"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}})
    await settle()
    assert enqueued == ["pod changed"]
    web.run()
    await settle()
    assert enqueued == ["pod changed", "pod changed"]


async def test_gauges_show_the_limit_and_the_unavailable_pods(start):
    server = FakeApiServer(gates=FeatureGates({"MaxUnavailableStatefulSet": True}))
    server.add(NAMESPACES, "ns")
    web = StatefulSetClient(server)
    await start(server.informers, StatefulSetController(server.context))
    web.create(replicas=3, podManagementPolicy="Parallel", updateStrategy={"rollingUpdate": {"maxUnavailable": 2}})
    await settle()
    web.run("web-1")
    await settle()
    assert server.metrics.values("statefulset_controller_statefulset_") == {
        "max_unavailable,ns,web,Parallel": 2,
        "unavailable_replicas,ns,web,Parallel": 2,
    }


@pytest.mark.parametrize(
    ("min_ready_seconds", "before", "after", "version", "calls"),
    [
        pytest.param(10, False, True, "2", ["ns/web", ("ns/web", 10)], id="becomes ready"),
        pytest.param(1, False, True, "2", ["ns/web", ("ns/web", 1)], id="becomes ready, one second"),
        pytest.param(0, False, True, "2", ["ns/web"], id="becomes ready, available at once"),
        pytest.param(10, True, True, "2", ["ns/web"], id="stays ready"),
        pytest.param(10, True, False, "2", ["ns/web"], id="is not ready any more"),
        pytest.param(10, False, True, "1", [], id="resync"),
    ],
)
async def test_pod_update_enqueues_the_stateful_set(min_ready_seconds, before, after, version, calls):
    queue, api = replay_server.RecordingQueue(), replay_server.ReplayServer({"state": {}})
    context = replay_server.replay_context(api, SetClock(datetime(2026, 1, 1, tzinfo=UTC)), queue)
    StatefulSetController(context)
    metadata = {"name": "web", "namespace": "ns", "uid": "sts"}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "minReadySeconds": min_ready_seconds}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "sts", "controller": True}

    def pod(ready: bool, resource_version: str) -> Pod:
        head = {"name": "web-0", "namespace": "ns", "uid": "p", "labels": {"app": "web"}, "ownerReferences": [owner]}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
        return convert(Pod, {"metadata": {**head, "resourceVersion": resource_version}, "status": status})

    sets, pods = context.informers.informer(STATEFUL_SETS), context.informers.informer(PODS)
    sets.apply("ADDED", convert(StatefulSet, {"metadata": metadata, "spec": spec}), 0)
    pods.apply("ADDED", pod(before, "1"), 0)
    queue.calls.clear()
    pods.apply("MODIFIED", pod(after, version), 0)
    assert [
        (call["key"], call["after_seconds"]) if "after_seconds" in call else call["key"] for call in queue.calls
    ] == calls


async def test_status_is_written_although_the_update_cannot_delete_a_pod(web):
    web.create(replicas=2)
    await run_all(web, 2)
    before = web.status
    web.server.transport.reject = lambda method, path: (
        errors.forbidden(PODS, "web-1", "not now") if method == "DELETE" else None
    )
    web.set_image("app:2")
    await settle(2)
    assert web.pods == ["web-0", "web-1"]
    assert web.status["updateRevision"] != before["updateRevision"]
    assert web.status["currentRevision"] == before["currentRevision"]
    assert web.events[-1].startswith("FailedDelete: ")
    errors_before = sum(web.server.metrics.values("kubeloop_reconcile_errors").values())
    assert errors_before > 0
    web.server.transport.reject = lambda method, path: None
    for _ in range(4):
        await settle(20)
        web.run()
    assert web.status["currentRevision"] == web.status["updateRevision"]
