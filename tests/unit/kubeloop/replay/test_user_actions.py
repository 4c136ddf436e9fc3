"""Actions of users in a recording, and changes that are left to controllers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.kube.objects.resources import HORIZONTAL_POD_AUTOSCALERS, NODES
from kubeloop.kube.user_error import UserError
from kubeloop.recording.changes import Finding, RecordedChange, key_of
from kubeloop.recording.memory import MemoryLimit
from kubeloop.replay.user_actions import NODE_LOST_SECONDS, UserAction, as_node, read_day

JSON = dict[str, Any]


class Changes:
    """A Recording of these changes."""

    name = "day.kubeloop"
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def __init__(self, *changes: RecordedChange) -> None:
        self.findings: list[Finding] = []
        self._changes = changes

    def changes(self) -> Iterator[RecordedChange]:
        yield from self._changes


def actions(*changes: RecordedChange) -> list[UserAction]:
    return read_day(Changes(*changes)).actions


def added(seconds: float, resource: str, obj: JSON, *, initial: bool = False) -> RecordedChange:
    return RecordedChange(seconds, "ADDED", resource, key_of(obj), obj, None, initial)


def modified(seconds: float, resource: str, before: JSON, obj: JSON) -> RecordedChange:
    return RecordedChange(seconds, "MODIFIED", resource, key_of(obj), obj, before)


def deleted(seconds: float, resource: str, obj: JSON) -> RecordedChange:
    return RecordedChange(seconds, "DELETED", resource, key_of(obj), obj)


def obj(kind: str, name: str, *, api_version: str = "v1", owner: JSON | None = None, **parts: Any) -> JSON:
    metadata: JSON = {"name": name, "namespace": "default", "uid": f"uid-{name}", **parts.pop("metadata", {})}
    if owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def node(name: str, ready: str = "True", **spec: Any) -> JSON:
    status = {"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": ready}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": spec,
        "status": status,
    }


def disrupted(pod: JSON, reason: str, **metadata: Any) -> JSON:
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return {**pod, "metadata": {**pod["metadata"], **metadata}, "status": {"conditions": [target]}}


DEPLOYMENT = obj("Deployment", "web", api_version="apps/v1", spec={"replicas": 2})
REPLICA_SET = obj("ReplicaSet", "web-1", api_version="apps/v1", owner=DEPLOYMENT, spec={"replicas": 2})
POD = obj("Pod", "web-1-a", owner=REPLICA_SET, spec={"nodeName": "n1", "containers": []})
BARE_POD = obj("Pod", "bare", spec={"nodeName": "n1", "containers": []})


def test_objects_of_controllers_are_not_created_by_users():
    assert actions(
        added(1.0, "deployments.apps", DEPLOYMENT),
        added(1.1, "replicasets.apps", REPLICA_SET),
        added(1.2, "pods", POD),
    ) == [UserAction(1.0, "create", *_address(DEPLOYMENT), {**DEPLOYMENT, "metadata": _metadata("web")})]


def _address(of: JSON) -> Sequence[Any]:
    from kubeloop.recording.resources import resource_of_kind

    return resource_of_kind(of["apiVersion"], of["kind"]), "default", of["metadata"]["name"]


def _metadata(name: str) -> JSON:
    return {"name": name, "namespace": "default"}


def test_initial_objects_are_not_created_again():
    day = read_day(Changes(added(0.0, "deployments.apps", DEPLOYMENT, initial=True)))
    assert day.actions == []
    assert [stored for _, stored in day.initial] == [DEPLOYMENT]


def test_changes_of_users_are_patches_without_what_controllers_write():
    after = {
        **DEPLOYMENT,
        "metadata": {**DEPLOYMENT["metadata"], "annotations": {"deployment.kubernetes.io/revision": "2"}},
        "spec": {"replicas": 5},
        "status": {"replicas": 2},
    }
    (action,) = actions(modified(3.0, "deployments.apps", DEPLOYMENT, after))
    assert (action.type, action.body) == ("patch", {"spec": {"replicas": 5}})
    assert actions(modified(3.0, "deployments.apps", DEPLOYMENT, {**after, "spec": DEPLOYMENT["spec"]})) == []


def test_bare_pod_is_created_without_its_node():
    (action,) = actions(added(2.0, "pods", BARE_POD))
    assert action.body["spec"] == {"containers": []}


@pytest.mark.parametrize(
    ("reason", "types"),
    [("PreemptionByScheduler", []), ("DeletionByTaintManager", []), ("EvictionByEvictionAPI", ["delete"])],
)
def test_deletion_of_a_bare_pod_is_of_users_unless_it_was_a_disruption(reason: str, types: list[str]):
    after = disrupted(BARE_POD, reason, deletionTimestamp="2026-01-01T00:00:09Z", deletionGracePeriodSeconds=5)
    done = actions(modified(9.0, "pods", BARE_POD, after), deleted(14.0, "pods", after))
    assert [action.type for action in done] == types
    assert all(action.seconds == 9.0 and action.body == {"gracePeriodSeconds": 5} for action in done)


def test_eviction_of_a_controlled_pod_is_of_users():
    (action,) = actions(
        added(0.0, "replicasets.apps", REPLICA_SET, initial=True),
        modified(9.0, "pods", POD, disrupted(POD, "EvictionByEvictionAPI")),
    )
    assert (action.type, action.workload, action.node) == ("evict", "deployment default/web", "n1")


def test_pods_of_unknown_controllers_act_as_recorded():
    workflow = obj("Workflow", "flow", api_version="argoproj.io/v1alpha1")
    pod = obj("Pod", "step", owner=workflow, spec={"containers": []})
    day = read_day(Changes(added(1.0, "pods", pod), deleted(5.0, "pods", pod)))
    assert [(action.seconds, action.type) for action in day.actions] == [(1.0, "create"), (5.0, "delete")]
    assert day.workload_of == {"default/step": "workflow default/flow"}
    assert "ownerReferences" not in day.actions[0].body["metadata"]


def test_lost_node_fails_a_grace_period_before_its_condition_is_unknown():
    before, lost = node("n1"), node("n1", "Unknown")
    fails, is_lost, recovers = actions(modified(100.0, "nodes", before, lost), modified(300.0, "nodes", lost, before))
    assert fails == UserAction(
        100.0 - NODE_LOST_SECONDS,
        "patch",
        NODES,
        "",
        "n1",
        {"metadata": {"annotations": {"kubeloop.dev/fail": "unreachable"}}},
    )
    assert (is_lost.seconds, is_lost.type) == (100.0, "lose node")
    assert is_lost.body == {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    assert (recovers.seconds, recovers.body) == (300.0, {"metadata": {"annotations": {"kubeloop.dev/fail": None}}})


@pytest.mark.parametrize(
    ("lost", "fails"),
    [
        pytest.param(30.0, 0.0, id="before the recording"),
        pytest.param(100.0, 55.0, id="after the last report of a pod"),
        pytest.param(300.0, 250.0, id="a grace period before"),
    ],
)
def test_node_is_lost_after_its_last_sign_of_life(lost: float, fails: float):
    ready = {**POD, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    changes = [modified(lost, "nodes", node("n1"), node("n1", "Unknown"))]
    if lost > 55.0:
        changes.insert(0, modified(55.0, "pods", POD, ready))
    assert actions(*changes)[0].seconds == fails


def test_claims_that_a_stateful_set_creates_are_not_of_users():
    template = {"metadata": {"name": "data"}, "spec": {}}
    stateful_set = obj("StatefulSet", "db", api_version="apps/v1", spec={"volumeClaimTemplates": [template]})
    names = ("data-db-0", "data-db-x", "data-other-0")
    claims = [added(1.0, "persistentvolumeclaims", obj("PersistentVolumeClaim", name, spec={})) for name in names]
    created = actions(*claims, added(1.1, "statefulsets.apps", stateful_set))  # watches arrive in any order
    assert [action.name for action in created] == ["data-db-x", "data-other-0", "db"]


def test_provisioning_takes_the_recorded_median_of_its_class():
    def claim(name: str, **spec: Any) -> JSON:
        requested = {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}
        spec = {"storageClassName": "fast", **spec}
        return obj("PersistentVolumeClaim", name, metadata=requested, spec=spec)

    classes = [{"kind": "StorageClass", "metadata": {"name": name}} for name in ("fast", "unused")]
    changes = [added(0.0, "storageclasses.storage.k8s.io", it, initial=True) for it in classes]
    for name, seconds in (("a", 3.0), ("b", 9.0), ("c", 4.0)):
        bound = claim(name, volumeName=f"pv-{name}")
        changes.append(added(10.0, "persistentvolumeclaims", claim(name)))
        changes.append(modified(10.0 + seconds, "persistentvolumeclaims", claim(name), bound))
    day = read_day(Changes(*changes))
    annotations = [stored["metadata"].get("annotations") for _, stored in day.initial]
    assert annotations == [{"kubeloop.dev/provision-seconds": "4.000"}, None]


def test_csi_nodes_are_replayed():
    csi_node = {
        "kind": "CSINode",
        "apiVersion": "storage.k8s.io/v1",
        "metadata": {"name": "n1"},
        "spec": {"drivers": []},
    }
    day = read_day(Changes(added(0.0, "csinodes.storage.k8s.io", csi_node, initial=True)))
    assert [stored for _, stored in day.initial] == [csi_node]


def test_deletion_of_a_replaced_pod_is_of_a_user():
    stopped = {**POD, "metadata": {**POD["metadata"], "deletionTimestamp": "t", "deletionGracePeriodSeconds": 5}}
    (action,) = actions(
        added(0.0, "deployments.apps", DEPLOYMENT, initial=True),
        added(0.0, "replicasets.apps", REPLICA_SET, initial=True),
        added(0.0, "pods", POD, initial=True),
        modified(7.0, "pods", POD, stopped),
    )
    assert (action.seconds, action.type, action.name, action.node) == (7.0, "delete replaced", "web-1-a", "n1")
    assert (action.workload, action.body) == ("deployment default/web", {"gracePeriodSeconds": 5})


def test_cordon_is_an_action_and_its_taint_is_not():
    cordoned = node("n1", unschedulable=True, taints=[{"key": "node.kubernetes.io/unschedulable"}])
    (action,) = actions(modified(4.0, "nodes", node("n1"), cordoned))
    assert action.body == {"spec": {"unschedulable": True}}


def test_changed_size_of_a_node_is_an_action():
    before = node("n1")
    after = {**before, "status": {**before["status"], "allocatable": {"cpu": "6"}}}
    (action,) = actions(modified(4.0, "nodes", before, after))
    assert (action.type, action.body) == ("patch status", {"status": {"allocatable": {"cpu": "6"}}})


def test_failed_node_of_the_start_is_a_failing_simulated_node():
    assert as_node(node("n1", "False"))["metadata"]["annotations"] == {"kubeloop.dev/fail": "not-ready"}


@pytest.mark.parametrize(
    ("before", "replicas", "scaled_at", "is_of_user"),
    [
        pytest.param(2, 7, 5.2, False, id="autoscaler"),
        pytest.param(2, 6, 5.2, True, id="other number"),
        pytest.param(2, 7, 15.0, True, id="later"),
        pytest.param(0, 7, 5.2, True, id="from zero"),
    ],
)
def test_scale_steps_of_an_autoscaler_are_not_those_of_a_user(
    before: int, replicas: int, scaled_at: float, is_of_user: bool
):
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    autoscaler = obj("HorizontalPodAutoscaler", "web", spec={"scaleTargetRef": reference})
    scaled = {**autoscaler, "status": {"desiredReplicas": 7, "lastScaleTime": "2026-01-01T00:00:05Z"}}
    name = "horizontalpodautoscalers.autoscaling"
    day = read_day(
        Changes(
            added(0.0, name, autoscaler, initial=True),
            modified(5.0, "deployments.apps", with_replicas(before), with_replicas(replicas)),
            modified(scaled_at, name, autoscaler, scaled),
        )
    )
    assert [action.body for action in day.actions] == [{"spec": {"replicas": replicas}}] * is_of_user
    assert "without metrics in the status: default/web" in str(day.findings[0])
    assert day.initial == [(HORIZONTAL_POD_AUTOSCALERS, autoscaler)]


def with_replicas(replicas: int) -> JSON:
    return {**DEPLOYMENT, "spec": {"replicas": replicas}}


def test_day_whose_actions_exceed_the_memory_is_refused():
    changes = Changes(*(added(float(number), "pods", {**BARE_POD, "spec": {"x": "y" * 100}}) for number in range(20)))
    with pytest.raises(UserError, match=r"day\.kubeloop: the cluster is larger than memory"):
        read_day(changes, MemoryLimit("day.kubeloop", available=4_000))


def test_object_that_no_server_stores_is_named():
    with pytest.raises(UserError, match=r"day\.kubeloop: pod default/bare: json: cannot unmarshal string"):
        actions(added(1.0, "pods", {**BARE_POD, "spec": "x"}))
