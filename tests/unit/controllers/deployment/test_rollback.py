"""Rollback of a Deployment to an old revision."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.deployment.replica_sets import REVISION, ROLLBACK_TO
from kubeloop.controllers.deployment.rollback import plan_rollback, rollback_patch, rollback_revision
from kubeloop.kube.objects.api_types import Deployment, ObjectMeta, ReplicaSet, convert

NOT_FOUND = "DeploymentRollbackRevisionNotFound"


def template(image: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}}


def web(revision: str) -> Deployment:
    """Return a Deployment with the template app:2 and a rollback annotation."""
    metadata = {"name": "web", "annotations": {ROLLBACK_TO: revision, REVISION: "2", "team": "b"}}
    return convert(Deployment, {"metadata": metadata, "spec": {"template": template("app:2")}})


def replica_set(revision: str, image: str) -> ReplicaSet:
    hashed = template(image)
    hashed["metadata"]["labels"]["pod-template-hash"] = "x1"
    metadata = {"name": f"web-{image[4:]}", "annotations": {REVISION: revision, "team": "a"}}
    return convert(ReplicaSet, {"metadata": metadata, "spec": {"template": hashed}})


@pytest.mark.parametrize(
    ("annotations", "revision"),
    [
        pytest.param({}, None, id="no annotation"),
        pytest.param({ROLLBACK_TO: "0"}, 0, id="previous revision"),
        pytest.param({ROLLBACK_TO: "x"}, None, id="not a number"),
    ],
)
def test_rollback_revision(annotations, revision):
    assert rollback_revision(Deployment(metadata=ObjectMeta(annotations=annotations))) == revision


@pytest.mark.parametrize(
    ("requested", "revisions", "reason", "restored"),
    [
        pytest.param("1", ["1", "2"], "DeploymentRollback", "web-1", id="given revision"),
        pytest.param("0", ["1", "2"], "DeploymentRollback", "web-1", id="previous revision"),
        pytest.param("2", ["1", "2"], "DeploymentRollbackTemplateUnchanged", None, id="current revision"),
        pytest.param("7", ["1", "2"], NOT_FOUND, None, id="unknown revision"),
        pytest.param("7", ["x", "2"], NOT_FOUND, None, id="revision that is no number"),
        pytest.param("0", ["", "2"], NOT_FOUND, None, id="no previous revision"),
    ],
)
def test_plan_rollback_finds_template_of_revision(requested, revisions, reason, restored):
    old, new = replica_set(revisions[0], "app:1"), replica_set(revisions[1], "app:2")
    rollback = plan_rollback(web(requested), [old, new])
    assert rollback.reason == reason
    assert (rollback.replica_set.metadata.name if rollback.replica_set is not None else None) == restored


def test_rollback_patch_replaces_template_and_annotations():
    assert rollback_patch(web("1"), replica_set("1", "app:1"), "7") == [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "replace", "path": "/spec/template", "value": template("app:1")},
        {"op": "add", "path": "/metadata/annotations", "value": {REVISION: "2", "team": "a"}},
    ]


def test_rollback_patch_without_replica_set_removes_annotation():
    assert rollback_patch(web("1"), None, "") == [
        {"op": "add", "path": "/metadata/annotations", "value": {REVISION: "2", "team": "b"}}
    ]
