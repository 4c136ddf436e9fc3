"""Deployments in unusual states that the recorded syncs do not contain; expected results follow the source of v1.36."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.controllers.deployment import deployment_status as status
from kubeloop.controllers.deployment import replica_sets, rolling_update
from kubeloop.controllers.deployment.deployment_controller import DeploymentController
from kubeloop.controllers.deployment.new_replica_set import new_replica_set, replica_set_name
from kubeloop.controllers.deployment.sync import DeploymentSync
from kubeloop.controllers.runtime.revisions.pod_template_hash import pod_template_hash, with_hash_label
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.status_delay import StatusDelay
from kubeloop.kube.objects.api_types import Deployment, DeploymentStatus, ReplicaSet, convert
from support.comparison import replay_server
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
