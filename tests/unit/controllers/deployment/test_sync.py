"""Deployments in unusual states that the recorded syncs do not contain; expected results follow the source of v1.36."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from kubeloop.controllers.deployment import deployment_status as status
from kubeloop.controllers.deployment import replica_sets, rolling_update
from kubeloop.controllers.deployment.deployment_controller import DeploymentController
from kubeloop.controllers.deployment.new_replica_set import new_replica_set, replica_set_name
from kubeloop.controllers.deployment.sync import DeploymentSync
from kubeloop.controllers.runtime.revisions.pod_template_hash import pod_template_hash, with_hash_label
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.status_delay import StatusDelay
from kubeloop.kube.errors import AlreadyExists, Forbidden, NotFound
from kubeloop.kube.objects.api_types import Deployment, DeploymentStatus, ReplicaSet, convert
from support.comparison import replay_server
from support.simulation.recorded_events import RecordedEvents
from support.simulation.set_clock import SetClock
from support.traces.disabled_recorders import DisabledReconcileRecorder

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
}


def web(*, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": "web-uid",
            "generation": 1,
            "resourceVersion": "1",
            "annotations": annotations or {},
        },
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": TEMPLATE,
            "strategy": strategy,
            **spec,
        },
    }


def owned_replica_set(replicas: int, annotations: dict[str, str], *, available: int = 0) -> dict[str, Any]:
    """Return the new ReplicaSet of `web`."""
    template_hash = pod_template_hash(TEMPLATE, None)
    template = with_hash_label(TEMPLATE, template_hash)
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"web-{template_hash}",
            "namespace": "default",
            "uid": "rs-uid",
            "resourceVersion": "2",
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "web-uid", "controller": True}],
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": template["metadata"]["labels"]},
            "template": template,
        },
        "status": {"replicas": replicas, "availableReplicas": available},
    }


async def sync_deployment(
    deployment: dict[str, Any], *stored_replica_sets: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """Run one sync. Returns its API calls and its calls of the queue."""
    state = {"deployments": [deployment], "replicasets": list(stored_replica_sets)}
    clock = SetClock(NOW)
    api, queue = replay_server.ReplayServer({"state": state}), replay_server.RecordingQueue()
    context = replay_server.replay_context(api, clock, queue)
    controller = DeploymentController(context)
    replay_server.fill(context.informers, state)
    queue.calls.clear()
    assert await controller._controller.process("default/web") is None
    return api.calls, queue.calls


DELETED = {"deletionTimestamp": "2026-01-01T11:00:00Z", "finalizers": ["foregroundDeletion"]}
SIZES = {replica_sets.DESIRED_REPLICAS: "3", replica_sets.MAX_REPLICAS: "4"}
FORBIDDEN = {"status": "Failure", "reason": "Forbidden", "code": 403, "message": "no more replica sets"}
TERMINATING = {**FORBIDDEN, "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
CONFLICT = {"status": "Failure", "reason": "Conflict", "code": 409, "message": "the object changed"}
TIMEOUT = {"status": "Failure", "reason": "InternalError", "code": 500, "message": "timed out"}


def old_replica_set(
    name: str = "web-old", replicas: int = 0, *, revision: str = "1", sizes: dict[str, str] = SIZES, **status: int
) -> dict[str, Any]:
    """Return a ReplicaSet of `web` with another template."""
    obj = owned_replica_set(replicas, {**sizes, replica_sets.REVISION: revision})
    template = {**TEMPLATE, "spec": {"containers": [{"name": "main", "image": "app:0"}]}}
    metadata = {**obj["metadata"], "name": name, "uid": f"uid-of-{name}", "resourceVersion": "3"}
    spec = {**obj["spec"], "template": with_hash_label(template, "old")}
    return {**obj, "metadata": metadata, "spec": spec, "status": {"replicas": replicas, **status}}


def pod_of(owner: dict[str, Any], phase: str = "Running") -> dict[str, Any]:
    metadata = owner["metadata"]
    reference = {"kind": "ReplicaSet", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    labels = {"app": "web"}
    return {
        "metadata": {
            "name": "pod",
            "namespace": "default",
            "uid": "pod",
            "labels": labels,
            "ownerReferences": [reference],
        },
        "status": {"phase": phase},
    }


class Synced(NamedTuple):
    """writes: verb, name and new size of each ReplicaSet that was written. conditions: by type, of the last status."""

    writes: list[tuple[str, str, int | None]]
    events: list[str]
    conditions: dict[str, tuple[str, str]]
    error: Exception | None
    status: dict[str, Any]


async def synced(
    deployment: dict[str, Any],
    *stored: dict[str, Any],
    faults: Sequence[dict[str, Any]] = (),
    pods: Sequence[dict[str, Any]] = (),
    not_in_cache: Sequence[dict[str, Any]] = (),
) -> Synced:
    """Run one sync. faults: requests that fail. not_in_cache: ReplicaSets that only the API server has."""
    state = {"deployments": [deployment], "replicasets": list(stored), "pods": list(pods)}
    record = {"state": state, "faults": list(faults), "api_server": {"replicasets": list(not_in_cache)}}
    api, queue = replay_server.ReplayServer(record), replay_server.RecordingQueue()
    context = replay_server.replay_context(api, SetClock(NOW), queue)
    controller = DeploymentController(context)
    replay_server.fill(context.informers, state)
    error = await controller._controller.process("default/web")
    statuses = [call["object"]["status"] for call in api.calls if call["subresource"] == "status"]
    writes = [
        (call["verb"], call["name"], call["object"]["spec"]["replicas"] if "object" in call else None)
        for call in api.calls
        if call["resource"] == "replicasets"
    ]
    conditions = {
        condition["type"]: (condition["status"], condition["reason"])
        for written in statuses[-1:]
        for condition in written.get("conditions", [])
    }
    assert isinstance(context.events, RecordedEvents)
    events = [f"{event.reason}: {event.message}" for event in context.events.events]
    return Synced(writes, events, conditions, error, statuses[-1] if statuses else {})


NEW_NAME = f"web-{pod_template_hash(TEMPLATE, None)}"
CURRENT = owned_replica_set(3, {**SIZES, replica_sets.REVISION: "2"}, available=3)


@pytest.mark.parametrize(
    ("deployment", "stored", "writes"),
    [
        pytest.param(web(), [], [("create", NEW_NAME, 3)], id="first sync"),
        pytest.param({**web(), "metadata": {**web()["metadata"], **DELETED}}, [], [], id="deleted: creates nothing"),
        pytest.param(
            {**web(replicas=5), "metadata": {**web()["metadata"], **DELETED}},
            [CURRENT],
            [],
            id="deleted: no scaling",
        ),
        pytest.param(web(paused=True), [], [], id="paused: creates nothing"),
        pytest.param(
            web(paused=True, replicas=5),
            [CURRENT],
            [("update", NEW_NAME, 5)],
            id="paused: is scaled",
        ),
        pytest.param(
            web(paused=True, revisionHistoryLimit=0),
            [CURRENT, old_replica_set()],
            [("delete", "web-old", None)],
            id="paused: is cleaned up",
        ),
        pytest.param(
            web(replicas=5, revisionHistoryLimit=0),
            [CURRENT, old_replica_set()],
            [("update", NEW_NAME, 5)],
            id="scaling: no clean-up",
        ),
        pytest.param(
            web(replicas=5), [old_replica_set(replicas=3)], [("update", "web-old", 5)], id="scaling: no rollout"
        ),
        pytest.param(
            web(revisionHistoryLimit=0),
            [CURRENT, old_replica_set()],
            [],
            id="incomplete rollout: no clean-up",
        ),
        pytest.param(
            {
                **web(revisionHistoryLimit=0),
                "status": {
                    "observedGeneration": 1,
                    "replicas": 3,
                    "updatedReplicas": 3,
                    "availableReplicas": 3,
                },
            },
            [CURRENT, old_replica_set()],
            [("delete", "web-old", None)],
            id="complete rollout: clean-up",
        ),
        pytest.param(
            web(),
            [
                owned_replica_set(0, {**SIZES, replica_sets.REVISION: "2"}),
                old_replica_set(replicas=3, availableReplicas=3),
            ],
            [("update", NEW_NAME, 1)],
            id="rolling: the new one first",
        ),
        pytest.param(
            web(),
            [
                owned_replica_set(1, {**SIZES, replica_sets.REVISION: "2"}, available=1),
                old_replica_set(replicas=3, availableReplicas=3),
            ],
            [("update", "web-old", 2)],
            id="rolling: an old pod after a new one is available",
        ),
        pytest.param(
            web(),
            [
                owned_replica_set(1, {**SIZES, replica_sets.REVISION: "2"}),
                old_replica_set(replicas=3, availableReplicas=3),
            ],
            [],
            id="rolling: waits for the new pod",
        ),
        pytest.param(
            web(),
            [owned_replica_set(1, {**SIZES, replica_sets.REVISION: "2"}, available=1), old_replica_set(replicas=3)],
            [("update", "web-old", 2)],
            id="rolling: an old pod that is not available, within maxUnavailable",
        ),
        pytest.param(
            web(strategy={"type": "Recreate"}),
            [old_replica_set(replicas=3, sizes={**SIZES, replica_sets.MAX_REPLICAS: "3"})],
            [("update", "web-old", 0)],
            id="recreate: old ones first",
        ),
        pytest.param(
            web(strategy={"type": "Recreate"}),
            [old_replica_set()],
            [("create", NEW_NAME, 3)],
            id="recreate: then the new one",
        ),
        pytest.param(
            web(strategy={"type": "Recreate"}),
            [
                owned_replica_set(0, {**SIZES, replica_sets.MAX_REPLICAS: "3", replica_sets.REVISION: "2"}),
                old_replica_set(),
            ],
            [("update", NEW_NAME, 3)],
            id="recreate: scales an existing one",
        ),
    ],
)
async def test_writes_of_a_sync(deployment, stored, writes):
    result = await synced(deployment, *stored)
    assert result.error is None
    assert result.writes == writes
    assert result.status["observedGeneration"] == 1


@pytest.mark.parametrize(
    ("phase", "writes"),
    [
        pytest.param("Running", [], id="old pod runs"),
        pytest.param("Failed", [("create", NEW_NAME, 3)], id="old pod has failed"),
        pytest.param("Succeeded", [("create", NEW_NAME, 3)], id="old pod has succeeded"),
    ],
)
async def test_recreate_waits_for_running_old_pods(phase, writes):
    old = old_replica_set()
    result = await synced(web(strategy={"type": "Recreate"}), old, pods=[pod_of(old, phase)])
    assert result.writes == writes


async def test_new_replica_set_is_reported():
    result = await synced(web(progressDeadlineSeconds=600))
    assert result.events == [f"ScalingReplicaSet: Scaled up replica set {NEW_NAME} from 0 to 3"]
    assert result.conditions["Progressing"] == ("True", "NewReplicaSetCreated")
    result = await synced(web(replicas=0))
    assert result.events == [], "a ReplicaSet without replicas is not scaled up"


@pytest.mark.parametrize(
    ("deadline", "error", "events", "condition"),
    [
        pytest.param(600, FORBIDDEN, 1, ("False", "ReplicaSetCreateError"), id="refused"),
        pytest.param(600, TIMEOUT, 1, ("False", "ReplicaSetCreateError"), id="server error"),
        pytest.param(2147483647, FORBIDDEN, 1, None, id="without deadline: no condition"),
        pytest.param(600, TERMINATING, 0, None, id="namespace is being deleted"),
    ],
)
async def test_failed_creation_is_reported(deadline, error, events, condition):
    fault = {"verb": "create", "resource": "replicasets", "error": error}
    result = await synced(web(progressDeadlineSeconds=deadline), faults=[fault])
    assert result.error is not None
    assert result.conditions.get("Progressing") == condition
    message = f'ReplicaSetCreateError: Failed to create new replica set "{NEW_NAME}": '
    assert [event.startswith(message) for event in result.events] == [True] * events


async def test_failed_creation_is_the_error_if_its_report_fails_too():
    faults = [
        {"verb": "create", "resource": "replicasets", "error": FORBIDDEN},
        {"verb": "update", "resource": "deployments", "subresource": "status", "error": CONFLICT},
    ]
    result = await synced(web(progressDeadlineSeconds=600), faults=faults)
    assert isinstance(result.error, Forbidden)
    assert len(result.events) == 1


def existing(owner_uid: str = "web-uid", image: str = "app:1") -> dict[str, Any]:
    """Return a ReplicaSet with the name of the new one."""
    obj = owned_replica_set(3, SIZES)
    reference = {"kind": "Deployment", "name": "web", "uid": owner_uid, "controller": True}
    template = {**obj["spec"]["template"], "spec": {"containers": [{"name": "main", "image": image}]}}
    metadata = {**obj["metadata"], "ownerReferences": [reference]}
    return {**obj, "metadata": metadata, "spec": {**obj["spec"], "template": template}}


@pytest.mark.parametrize(
    ("cached", "collisions"),
    [
        pytest.param(existing("other"), 1, id="another owner"),
        pytest.param(existing(image="app:0"), 1, id="another template"),
    ],
)
async def test_collision_of_hashes_is_counted(cached, collisions):
    result = await synced(web(), cached)
    assert isinstance(result.error, AlreadyExists)
    assert result.status["collisionCount"] == collisions
    counted = {**web(), "status": {"collisionCount": 7}}
    name = f"web-{pod_template_hash(TEMPLATE, 7)}"
    cached = {**cached, "metadata": {**cached["metadata"], "name": name}}
    assert (await synced(counted, cached)).status["collisionCount"] == 8
    fault = {"verb": "update", "resource": "deployments", "subresource": "status", "error": CONFLICT}
    assert isinstance((await synced(counted, cached, faults=[fault])).error, AlreadyExists)


async def test_own_replica_set_that_appeared_during_the_sync_is_used():
    deployment, rs = convert(Deployment, web()), existing()
    record = {"state": {"deployments": [web()], "replicasets": [rs]}}
    api, queue = replay_server.ReplayServer(record), replay_server.RecordingQueue()
    context = replay_server.replay_context(api, SetClock(NOW), queue)
    replay_server.fill(context.informers, {"replicasets": [rs]})
    sync = DeploymentSync(
        deployment,
        [],
        context=context,
        consistency=ConsistencyStore({}),
        status_delay=StatusDelay(queue, 0.0),
        reconcile=DisabledReconcileRecorder().reconcile("deployment", deployment.key),
    )
    await sync.run()
    revisions = [call["object"]["metadata"]["annotations"] for call in api.calls if call["subresource"] == "status"]
    assert revisions[0][replica_sets.REVISION] == "1"
    assert "collisionCount" not in api.calls[-1]["object"]["status"]


async def test_replica_set_that_the_cache_does_not_show_is_no_collision():
    result = await synced(web(), not_in_cache=[existing()])
    assert isinstance(result.error, NotFound)
    assert result.writes == [("create", NEW_NAME, 3)]


async def test_failed_scale_down_of_old_pods_does_not_fail_the_sync():
    stored = [
        owned_replica_set(1, {**SIZES, replica_sets.REVISION: "2"}, available=1),
        old_replica_set(replicas=3, availableReplicas=3),
    ]
    fault = {"verb": "update", "resource": "replicasets", "error": CONFLICT}
    result = await synced(web(), *stored, faults=[fault])
    assert (result.error, result.writes) == (None, [("update", "web-old", 2)])


async def test_copied_annotations_without_valid_revision_wait_for_write():
    sizes = {"deployment.kubernetes.io/desired-replicas": "3", "deployment.kubernetes.io/max-replicas": "4"}
    revision = {"deployment.kubernetes.io/revision": "abc"}

    calls, _ = await sync_deployment(web(annotations={"team": "a"}), owned_replica_set(2, {**revision, **sizes}))
    scaled = next(call for call in calls if call["resource"] == "replicasets")
    assert scaled["object"]["spec"]["replicas"] == 3
    assert scaled["object"]["metadata"]["annotations"] == {**revision, **sizes, "team": "a"}

    calls, _ = await sync_deployment(web(annotations={"team": "a"}), owned_replica_set(3, {**revision, **sizes}))
    assert not [call for call in calls if call["resource"] == "replicasets"], "they ask for no write of their own"


async def test_replica_set_of_the_new_size_gets_the_new_annotation():
    """Otherwise each later sync would scale again, and no other template would ever be rolled out."""
    annotations = {replica_sets.DESIRED_REPLICAS: "4", replica_sets.MAX_REPLICAS: "5", replica_sets.REVISION: "1"}
    calls, _ = await sync_deployment(web(), owned_replica_set(3, annotations))
    (scaled,) = [call for call in calls if call["resource"] == "replicasets"]
    assert scaled["object"]["spec"]["replicas"] == 3
    assert scaled["object"]["metadata"]["annotations"] == {
        replica_sets.DESIRED_REPLICAS: "3",
        replica_sets.MAX_REPLICAS: "4",
        replica_sets.REVISION: "1",
    }


def test_size_annotations_accept_digits_only():
    def size(text: str) -> tuple[int | None, int | None]:
        rs = convert(
            ReplicaSet, owned_replica_set(1, {replica_sets.DESIRED_REPLICAS: text, replica_sets.MAX_REPLICAS: text})
        )
        return rolling_update.desired_replicas_annotation(rs), rolling_update.max_replicas_annotation(rs)

    assert size("0") == (0, 0)
    assert size("2147483647") == (2147483647, 2147483647)
    for text in ("", "-3", "+3", " 3", "3.0", "x", "2147483648", "\N{ARABIC-INDIC DIGIT THREE}"):
        assert size(text) == (None, None), text


def test_negative_size_annotation_is_no_scaling_event():
    deployment = convert(Deployment, web())
    negative = convert(ReplicaSet, owned_replica_set(3, {replica_sets.DESIRED_REPLICAS: "-3"}))
    assert not rolling_update.is_scaling_event(deployment, [negative])
    assert rolling_update.is_scaling_event(
        deployment, [convert(ReplicaSet, owned_replica_set(3, {replica_sets.DESIRED_REPLICAS: "4"}))]
    )


def test_saturation_accepts_size_annotation_with_sign():
    deployment = convert(Deployment, web())
    for text, saturated in (("3", True), ("+3", True), ("4", False), ("x", False), ("", False)):
        rs = convert(ReplicaSet, owned_replica_set(3, {replica_sets.DESIRED_REPLICAS: text}, available=3))
        assert rolling_update.is_saturated(deployment, rs) == saturated, text


def test_progressing_condition_without_time_exceeds_deadline():
    progressing = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
    deployment = convert(Deployment, {**web(progressDeadlineSeconds=600), "status": {"conditions": [progressing]}})
    assert status.seconds_until_progress_deadline(deployment, DeploymentStatus(), NOW) == 0.0
    deployment = convert(Deployment, {**web(), "status": {"conditions": [progressing]}})
    assert status.seconds_until_progress_deadline(deployment, DeploymentStatus(), NOW) is None, (
        "no deadline, nothing to wait for"
    )


def test_plain_form_distinguishes_zero_pointer_from_nil():
    def container(**members: Any) -> dict[str, Any]:
        return replay_server.plain({"containers": [{"name": "main", **members}]}, "core/v1.PodSpec")

    assert container(resources={}, stdin=False, env=[]) == container()
    assert container(securityContext={"runAsUser": 0}) != container(securityContext={})
    assert container(securityContext={}) != container()
    assert container(unknown=0) != container()


@pytest.mark.parametrize(
    ("deployment_name", "expected"),
    [
        pytest.param("web", "web-5d4f8c7b9", id="short"),
        pytest.param("d" * 253, "d" * 243 + "-5d4f8c7b9", id="truncated to 253 characters"),
    ],
)
def test_replica_set_name_has_template_hash(deployment_name, expected):
    assert replica_set_name(deployment_name, "5d4f8c7b9") == expected


def test_new_replica_set_selects_its_template_hash():
    deployment = convert(Deployment, web(annotations={"team": "a"}, minReadySeconds=5))
    name, size, body = new_replica_set(deployment, [], "7")
    template_hash = pod_template_hash(TEMPLATE, None)
    labels = {"app": "web", "pod-template-hash": template_hash}
    assert (name, size) == (f"web-{template_hash}", 3)
    assert body["spec"]["selector"] == {"matchLabels": labels}
    assert body["spec"]["template"]["metadata"]["labels"] == labels
    assert body["spec"]["minReadySeconds"] == 5
    assert body["metadata"]["ownerReferences"][0]["uid"] == "web-uid"
    assert body["metadata"]["annotations"] == {
        "team": "a",
        "deployment.kubernetes.io/revision": "7",
        "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
    }


def test_new_replica_set_has_its_size_annotations_without_a_revision():
    """The revision after the largest int64 is negative, and is not written."""
    deployment = convert(Deployment, web(replicas=3))
    _, _, body = new_replica_set(deployment, [], "-9223372036854775808")
    assert body["metadata"]["annotations"] == {
        "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
    }


async def test_sync_of_unknown_strategy_fails():
    deployment = convert(Deployment, web(strategy={"type": "Canary"}))
    api, queue = replay_server.ReplayServer({"state": {"deployments": [web()]}}), replay_server.RecordingQueue()
    sync = DeploymentSync(
        deployment,
        [],
        context=replay_server.replay_context(api, SetClock(NOW), queue),
        consistency=ConsistencyStore({}),
        status_delay=StatusDelay(queue, 0.0),
        reconcile=DisabledReconcileRecorder().reconcile("deployment", deployment.key),
    )
    with pytest.raises(rolling_update.UnsupportedStrategy, match="Canary"):
        await sync.run()
    assert api.calls == []


async def test_rollback_to_a_missing_revision_only_removes_the_request():
    calls, _ = await sync_deployment(web(annotations={replica_sets.ROLLBACK_TO: "7"}), CURRENT, old_replica_set())
    written = calls[-1]["object"]
    assert (calls[-1]["resource"], calls[-1]["subresource"]) == ("deployments", "")
    assert replica_sets.ROLLBACK_TO not in written["metadata"]["annotations"]
    assert written["spec"] == web()["spec"]
