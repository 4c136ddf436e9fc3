"""The ReplicaSet that is created for a template, and its annotations, as the source of v1.36 defines them."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.deployment.new_replica_set import (
    MAX_NAME_LENGTH,
    MAX_REVISION_HISTORY_CHARS,
    new_replica_set,
    new_replica_set_annotations,
    replica_set_name,
)
from kubeloop.controllers.deployment.replica_sets import (
    DESIRED_REPLICAS,
    LAST_APPLIED,
    MAX_REPLICAS,
    REVISION,
    REVISION_HISTORY,
    ROLLBACK_TO,
)
from kubeloop.controllers.runtime.revisions.pod_template_hash import pod_template_hash
from kubeloop.kube.objects.api_types import Deployment, convert
from support.objects.deployments import replica_set

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
}


def web(*, collision_count: int | None = None, **spec: Any) -> Deployment:
    return convert(
        Deployment,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "uid": "web-uid", "annotations": {"team": "a"}},
            "spec": {
                "replicas": 10,
                "selector": {"matchLabels": {"app": "web"}},
                "template": TEMPLATE,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                **spec,
            },
            "status": {"collisionCount": collision_count},
        },
    )


def test_body_of_the_new_replica_set():
    template_hash = pod_template_hash(TEMPLATE, None)
    labels = {"app": "web", "pod-template-hash": template_hash}
    name, size, body = new_replica_set(web(), [replica_set("old", 10)], "2")
    assert (name, size) == (f"web-{template_hash}", 3)  # maxSurge is 25 % of 10, rounded up
    assert body == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": labels,
            "annotations": {"team": "a", REVISION: "2", DESIRED_REPLICAS: "10", MAX_REPLICAS: "13"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": "web",
                    "uid": "web-uid",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": TEMPLATE["spec"]},
        },
    }


def test_new_replica_set_copies_min_ready_seconds_and_expressions():
    expressions = ({"key": "app", "operator": "In", "values": ("web",)},)
    _, _, body = new_replica_set(web(minReadySeconds=1, selector={"matchExpressions": expressions}), [], "1")
    assert body["spec"]["minReadySeconds"] == 1
    assert body["spec"]["selector"] == {
        "matchExpressions": expressions,
        "matchLabels": {"pod-template-hash": pod_template_hash(TEMPLATE, None)},
    }


def test_collision_changes_the_name():
    names = {new_replica_set(web(collision_count=count), [], "1")[0] for count in (None, 1, 2)}
    assert len(names) == 3


@pytest.mark.parametrize(
    ("length", "kept"),
    [
        pytest.param(MAX_NAME_LENGTH - 5, MAX_NAME_LENGTH - 5, id="fits"),
        pytest.param(MAX_NAME_LENGTH - 4, MAX_NAME_LENGTH - 5, id="one character too long"),
        pytest.param(MAX_NAME_LENGTH, MAX_NAME_LENGTH - 5, id="the longest name"),
    ],
)
def test_name_leaves_room_for_the_hash(length, kept):
    assert MAX_NAME_LENGTH == 253
    assert replica_set_name("d" * length, "hash") == "d" * kept + "-hash"


NEW_SIZES = {DESIRED_REPLICAS: "3", MAX_REPLICAS: "4"}


@pytest.mark.parametrize(
    ("deployment", "before", "revision", "replicas", "after", "changed"),
    [
        pytest.param({}, {}, "1", NEW_SIZES, {REVISION: "1", **NEW_SIZES}, True, id="a new one"),
        pytest.param({}, {REVISION: "1"}, "1", {}, {REVISION: "1"}, False, id="unchanged"),
        pytest.param({}, {REVISION: "3"}, "2", {}, {REVISION: "3"}, False, id="a higher revision stays"),
        pytest.param(
            {}, {REVISION: "1"}, "3", {}, {REVISION: "3", REVISION_HISTORY: "1"}, True, id="rollback: first history"
        ),
        pytest.param(
            {},
            {REVISION: "3", REVISION_HISTORY: "1"},
            "5",
            {},
            {REVISION: "5", REVISION_HISTORY: "1,3"},
            True,
            id="rollback: longer history",
        ),
        pytest.param({}, {REVISION: ""}, "1", {}, {REVISION: "1", REVISION_HISTORY: ""}, True, id="empty revision"),
        pytest.param({}, {REVISION: "0"}, "1", {}, {REVISION: "1", REVISION_HISTORY: "0"}, True, id="revision 0"),
        pytest.param(
            {"team": "a"}, {REVISION: "1"}, "1", {}, {REVISION: "1", "team": "a"}, True, id="annotation is added"
        ),
        pytest.param(
            {"team": "b"}, {REVISION: "1", "team": "a"}, "1", {}, {REVISION: "1", "team": "b"}, True, id="and changed"
        ),
        pytest.param(
            {"team": "a"}, {REVISION: "1", "team": "a"}, "1", {}, {REVISION: "1", "team": "a"}, False, id="and equal"
        ),
        pytest.param(
            {}, {REVISION: "1", "team": "a"}, "1", {}, {REVISION: "1", "team": "a"}, False, id="never removed"
        ),
        pytest.param(
            {
                REVISION: "9",
                REVISION_HISTORY: "8",
                DESIRED_REPLICAS: "9",
                MAX_REPLICAS: "9",
                LAST_APPLIED: "{}",
                ROLLBACK_TO: "1",
            },
            {REVISION: "1"},
            "1",
            {},
            {REVISION: "1"},
            False,
            id="bookkeeping is not copied",
        ),
        pytest.param(
            {"team": "a"}, {REVISION: "x"}, "2", NEW_SIZES, {REVISION: "x", "team": "a"}, False, id="old is no number"
        ),
        pytest.param(
            {"team": "a"}, {REVISION: "1"}, "x", NEW_SIZES, {REVISION: "1", "team": "a"}, False, id="new is no number"
        ),
        pytest.param(
            {}, {REVISION: "1"}, "1", NEW_SIZES, {REVISION: "1", **NEW_SIZES}, True, id="sizes of one to create"
        ),
        pytest.param(
            {}, {REVISION: "1", **NEW_SIZES}, "1", NEW_SIZES, {REVISION: "1", **NEW_SIZES}, False, id="equal sizes"
        ),
    ],
)
def test_annotations_of_the_new_replica_set(deployment, before, revision, replicas, after, changed):
    unmodified = dict(before)
    assert new_replica_set_annotations(deployment, before, revision, replicas=replicas) == (after, changed)
    assert before == unmodified, "the input is not modified"


@pytest.mark.parametrize(
    ("history", "limit", "after"),
    [
        pytest.param("1,2", 5, "1,2,3", id="exactly the limit"),
        pytest.param("1,2", 4, "2,3", id="the oldest is dropped"),
        pytest.param("1,2", 3, "2,3", id="the rest is exactly the limit"),
        pytest.param("1,2", 2, "3", id="all but the last are dropped"),
        pytest.param("1,2", 0, "1,2", id="no room: unchanged"),
        pytest.param("100,2", 5, "2,3", id="a long one is dropped"),
    ],
)
def test_revision_history_is_limited(history, limit, after):
    before = {REVISION: "3", REVISION_HISTORY: history}
    annotations, _ = new_replica_set_annotations({}, before, "4", replicas={}, max_history_chars=limit)
    assert annotations[REVISION_HISTORY] == after


def test_revision_history_has_at_most_2000_characters():
    assert MAX_REVISION_HISTORY_CHARS == 2000
    before = {REVISION: "500", REVISION_HISTORY: ",".join(["100"] * 500)}  # 1,999 characters
    annotations, _ = new_replica_set_annotations({}, before, "501", replicas={})
    assert annotations[REVISION_HISTORY] == ",".join([*["100"] * 499, "500"])
