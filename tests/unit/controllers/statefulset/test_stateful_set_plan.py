"""Plan of a StatefulSet: which Pods are created, updated and deleted next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from kubeloop.controllers.statefulset.stateful_set_plan import (
    ChangePod,
    CreatePod,
    StatefulSetPlan,
    StatefulSetRevisions,
    by_ordinal,
    max_unavailable,
    plan_pods,
    revision_of_new_pod,
)
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.api_types import ControllerRevision, ObjectMeta, Pod, StatefulSet, convert
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
from support.objects.stateful_sets import stateful_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = (ControllerRevision(metadata=ObjectMeta(name=name)) for name in ("old", "new"))
PARALLEL = {"podManagementPolicy": "Parallel"}


def web(replicas: int = 3, *, deleted: bool = False, **spec: Any) -> StatefulSet:
    spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    body = stateful_set(replicas=replicas, **spec)
    body["metadata"].update(namespace="ns", uid="sts-uid")
    if deleted:
        body["metadata"]["deletionTimestamp"] = rfc3339(NOW)
    return convert(StatefulSet, body)


def pod(ordinal: int, state: str = "ready", revision: str = "new", label: bool = True, **spec: Any) -> Pod:
    """state: phases in lower case, "ready" (for a minute), "new" (ready since a second), "terminating"."""
    name = f"web-{ordinal}"
    labels = {"controller-revision-hash": revision} | ({"statefulset.kubernetes.io/pod-name": name} if label else {})
    metadata: dict[str, Any] = {"name": name, "uid": name, "labels": labels}
    if state == "terminating":
        metadata["deletionTimestamp"] = rfc3339(NOW)
    phases = {"pending": "Pending", "failed": "Failed", "succeeded": "Succeeded"}
    conditions = []
    if state in ("ready", "new", "terminating"):
        since = rfc3339(NOW - timedelta(seconds=1 if state == "new" else 60))
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": since})
    status = {"phase": phases.get(state, "Running"), "conditions": conditions}
    return convert(Pod, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})


def plan(sts: StatefulSet, *pods: Pod, claims: Any = (), limits_unavailable: bool = False) -> StatefulSetPlan:
    by_name = {claim.metadata.name: claim for claim in claims}
    return plan_pods(
        sts,
        by_ordinal(sts, pods),
        StatefulSetRevisions(OLD, NEW),
        by_name.get,
        NOW,
        limits_unavailable=limits_unavailable,
    )


def summary(plan: StatefulSetPlan) -> list[str]:
    """Return the writes in order: "create 2 new", "delete web-1", "roll web-1" for the deletion of an update."""
    writes = []
    for phase in plan.phases:
        for action in (action for actions in phase for action in actions):
            if isinstance(action, CreatePod):
                writes.append(f"create {action.ordinal} {action.revision.metadata.name}")
            else:
                assert isinstance(action, ChangePod)
                writes.append(f"{action.verb} {action.pod.metadata.name}")
    return writes + [f"roll {pod.metadata.name}" for pod in plan.update_deletions]


@pytest.mark.parametrize(
    ("pods", "writes"),
    [
        pytest.param([], ["create 0 new"], id="first pod"),
        pytest.param([pod(0)], ["create 1 new"], id="next pod"),
        pytest.param([pod(1), pod(2)], ["create 0 new"], id="gap"),
        pytest.param([pod(0, "pending")], [], id="waits for pending"),
        pytest.param([pod(0, "running")], [], id="waits for not ready"),
        pytest.param([pod(0, "terminating")], [], id="waits for terminating"),
        pytest.param([pod(0, "failed")], ["delete web-0"], id="deletes failed"),
        pytest.param([pod(0, "succeeded")], ["delete web-0"], id="deletes succeeded"),
        pytest.param([pod(0, label=False)], ["update web-0", "create 1 new"], id="restores identity"),
        pytest.param([pod(0), pod(1), pod(2)], [], id="complete"),
        pytest.param([pod(n) for n in range(5)], ["delete web-4"], id="highest ordinal first"),
        pytest.param([*map(pod, range(4)), pod(4, "terminating")], [], id="one deletion at a time"),
        pytest.param([*map(pod, range(4)), pod(4, "running")], ["delete web-4"], id="deletes first unhealthy"),
        pytest.param(
            [*map(pod, range(3)), pod(3, "running"), pod(4, "running")], [], id="lower condemned pod is unhealthy"
        ),
        pytest.param([*map(pod, range(3)), pod(3, "running"), pod(4)], ["delete web-4"], id="highest is healthy"),
        pytest.param([pod(0), pod(1, "running"), pod(2), pod(3)], [], id="replicas come before scale-down"),
    ],
)
def test_ordered_management(pods, writes):
    assert summary(plan(web(3), *pods)) == writes


@pytest.mark.parametrize(
    ("pods", "writes"),
    [
        pytest.param([], ["create 0 new", "create 1 new", "create 2 new"], id="all at once"),
        pytest.param([pod(0, "pending"), pod(2)], ["create 1 new"], id="does not wait"),
        pytest.param([pod(n) for n in range(5)], ["delete web-4", "delete web-3"], id="scale-down"),
        pytest.param([pod(3, "terminating"), pod(0, "failed"), pod(1), pod(2)], ["delete web-0"], id="failed"),
    ],
)
def test_parallel_management(pods, writes):
    assert summary(plan(web(3, **PARALLEL), *pods)) == writes


def test_deleted_stateful_set_has_an_empty_plan():
    assert not plan(web(3, deleted=True), pod(0, "failed"), pod(4)).has_changes


def test_pod_waits_for_min_ready_seconds_of_its_predecessor():
    assert summary(plan(web(2, minReadySeconds=10), pod(0, "new"))) == []
    assert summary(plan(web(2, minReadySeconds=10), pod(0))) == ["create 1 new"]


def rolling(partition: int = 0, **limits: Any) -> dict[str, Any]:
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition, **limits}}}


@pytest.mark.parametrize(
    ("spec", "states", "writes"),
    [
        pytest.param(rolling(), ["old", "old", "old"], ["roll web-2"], id="highest first"),
        pytest.param(rolling(), ["old", "old", "new"], ["roll web-1"], id="next"),
        pytest.param(rolling(), ["new", "new", "new"], [], id="complete"),
        pytest.param(rolling(2), ["old", "old", "new"], [], id="partition reached"),
        pytest.param(rolling(5), ["old", "old", "old"], [], id="partition beyond replicas"),
        pytest.param(rolling(1), ["old", "old", "new"], ["roll web-1"], id="above the partition"),
        pytest.param(rolling(), ["old", "new", "new"], ["roll web-0"], id="the lowest ordinal"),
        pytest.param(
            {"updateStrategy": {"type": "RollingUpdate"}}, ["old", "new", "new"], ["roll web-0"], id="no partition"
        ),
        pytest.param({"updateStrategy": {"type": "OnDelete"}}, ["old", "old", "old"], [], id="OnDelete"),
    ],
)
def test_rolling_update(spec, states, writes):
    pods = [pod(ordinal, revision=state) for ordinal, state in enumerate(states)]
    assert summary(plan(web(3, **spec), *pods)) == writes


def test_parallel_rolling_update_waits_for_an_unavailable_updated_pod():
    sts = web(2, **PARALLEL)
    assert summary(plan(sts, pod(0, revision="old"), pod(1, "running"))) == []
    assert summary(plan(sts, pod(0, revision="old"), pod(1, "running", revision="old"))) == ["roll web-1"]


@pytest.mark.parametrize(
    ("max_unavailable", "states", "writes"),
    [
        pytest.param(2, ["ready"] * 4, ["roll web-3", "roll web-2"], id="two at once"),
        pytest.param("50%", ["ready"] * 4, ["roll web-3", "roll web-2"], id="percentage"),
        pytest.param(2, ["running", "ready", "ready", "ready"], ["roll web-3"], id="one is unavailable already"),
        pytest.param(2, ["running", "running", "ready", "ready"], [], id="limit reached"),
        pytest.param(None, ["ready"] * 4, ["roll web-3"], id="one by default"),
    ],
)
def test_rolling_update_with_max_unavailable(max_unavailable, states, writes):
    limits = {} if max_unavailable is None else {"maxUnavailable": max_unavailable}
    sts = web(4, **PARALLEL, **rolling(**limits))
    pods = [pod(ordinal, state, revision="old") for ordinal, state in enumerate(states)]
    assert summary(plan(sts, *pods, limits_unavailable=True)) == writes


@pytest.mark.parametrize(("value", "count"), [(3, 3), ("25%", 2), ("1%", 1), (None, 1)])
def test_max_unavailable_is_rounded_down_but_at_least_one(value, count):
    assert max_unavailable(web(10, **rolling(maxUnavailable=value))) == count


def test_new_pod_below_the_partition_has_the_current_revision():
    sts = web(3, ordinals={"start": 5}, **PARALLEL, **rolling(2))
    assert summary(plan(sts)) == ["create 5 old", "create 6 old", "create 7 new"]


def test_new_pod_has_the_update_revision_with_on_delete():
    assert summary(plan(web(1, updateStrategy={"type": "OnDelete"}))) == ["create 0 new"]


def claim(name: str, *owners: dict[str, Any], **metadata: Any) -> PersistentVolumeClaim:
    return convert(PersistentVolumeClaim, {"metadata": {"name": name, "ownerReferences": list(owners), **metadata}})


VOLUMES = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}]}
FORMER_POD = {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "former", "controller": True}
POD_OWNER = FORMER_POD | {"uid": "web-0"}
DELETING = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"}}


@pytest.mark.parametrize(
    ("pods", "claims", "writes"),
    [
        pytest.param([], [claim("data-web-0")], ["create 0 new"], id="claim exists"),
        pytest.param([], [claim("data-web-0", FORMER_POD)], [], id="claim of a former pod blocks"),
        pytest.param([pod(0, "pending", **VOLUMES)], [], ["create claims web-0"], id="pending pod without claim"),
        pytest.param([pod(0, "pending", **VOLUMES)], [claim("data-web-0")], [], id="pending pod with claim"),
        pytest.param(
            [pod(0, "pending", **VOLUMES)],
            [claim("data-web-0", deletionTimestamp=rfc3339(NOW))],
            ["create claims web-0"],
            id="pending pod, claim is being deleted",
        ),
        pytest.param([pod(0, **VOLUMES)], [], [], id="running pod without claim is left alone"),
        pytest.param([pod(0, **VOLUMES)], [claim("data-web-0", POD_OWNER)], ["update web-0"], id="wrong owner"),
        pytest.param([pod(0)], [claim("data-web-0")], ["update web-0"], id="pod without the volume"),
    ],
)
def test_claims(pods, claims, writes):
    assert summary(plan(web(1, claims=("data",), **DELETING), *pods, claims=claims)) == writes


def test_claims_of_condemned_pods_get_their_owner_before_the_deletion():
    sts = web(0, claims=("data",), **DELETING)
    assert summary(plan(sts, pod(0, **VOLUMES), claims=[claim("data-web-0")])) == [
        "update claims web-0",
        "delete web-0",
    ]


@pytest.mark.parametrize(
    ("strategy", "current_replicas", "revisions"),
    [
        pytest.param({"type": "RollingUpdate"}, 0, ["new", "new", "new"], id="no pod of the current revision"),
        pytest.param({"type": "RollingUpdate"}, 2, ["old", "old", "new"], id="as many as the status counts"),
        pytest.param({"type": "RollingUpdate"}, 3, ["old", "old", "old"], id="all"),
        pytest.param({"type": "OnDelete"}, 3, ["new", "new", "new"], id="OnDelete"),
        pytest.param({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}, 3, ["new"] * 3, id="partition 0"),
        pytest.param({"type": "RollingUpdate", "rollingUpdate": {}}, 3, ["new"] * 3, id="no partition"),
        pytest.param(
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}, 3, ["old", "new", "new"], id="partition 1"
        ),
    ],
)
@pytest.mark.parametrize("start", [0, 5])
def test_revision_of_a_new_pod(strategy, current_replicas, revisions, start):
    sts = web(3, ordinals={"start": start}, updateStrategy=strategy)
    sts = structs.replace(sts, status=structs.replace(sts.status, current_replicas=current_replicas))
    ordinals = range(start, start + 3)
    names = [revision_of_new_pod(sts, StatefulSetRevisions(OLD, NEW), ordinal).metadata.name for ordinal in ordinals]
    assert names == revisions
