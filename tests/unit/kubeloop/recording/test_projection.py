"""kubeloop/recording/projection.py: what is recorded, and what is not."""

from __future__ import annotations

import msgspec
import pytest

from kubeloop.recording.projection import LAST_APPLIED, OMITTED, project
from support.objects.recorded_objects import container, deployment, node, pod

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
OBJECTS = [
    node("node-1"),
    pod("web-1", "node-1"),
    pod("web-2", owner=OWNER),
    deployment("web"),
    {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "shop"},
        "spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [container()]}}}}},
    },
    {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "db-1", "namespace": "shop"},
        "data": {"spec": {"template": {"spec": {"containers": [container()]}, "$patch": "replace"}}},
    },
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"}, "data": {"p": "hunter2"}},
]


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: obj["kind"])
def test_projection_has_no_secrets_and_is_idempotent(obj):
    projected = project(obj["kind"], obj)
    text = msgspec.json.encode(projected).decode()
    for left_out in ("hunter2", "internal", "secret", "managedFields", "resourceVersion", "lastHeartbeatTime"):
        assert left_out not in text
    assert project(obj["kind"], projected) == projected


def test_pod_of_a_controller_has_no_digest():
    (projected,) = project("Pod", pod("web-2", owner=OWNER))["spec"]["containers"]
    assert "env" not in projected
    assert projected["resources"] == container()["resources"]
    assert projected["readinessProbe"]["periodSeconds"] == 5


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"env": [{"name": "PASSWORD", "value": "swordfish"}]}, True, id="environment"),
        pytest.param({"command": ["/bin/web"]}, True, id="command"),
        pytest.param({"args": ["-v"]}, True, id="arguments"),
        pytest.param({"image": "other"}, True, id="image"),
        pytest.param({"env": [{"name": "PASSWORD", "value": "hunter2"}], "args": []}, False, id="empty list"),
        pytest.param({"readinessProbe": {"exec": {"command": ["other"]}, "periodSeconds": 5}}, True, id="probe"),
    ],
)
def test_template_differs_if_what_is_left_out_changed(changes, differs):
    before, after = (project("Deployment", deployment("web", **args))["spec"]["template"] for args in ({}, changes))
    assert (before != after) is differs


def test_defaults_of_variables_do_not_change_the_digest():
    written = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    stored = {"name": "IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
    first, second = (project("Deployment", deployment("web", env=[variable])) for variable in (written, stored))
    assert first == second
    assert first["spec"]["template"]["spec"]["containers"][0]["env"][0]["name"] == OMITTED


def test_annotations_of_templates_are_digests():
    annotations = project("Deployment", deployment("web"))["spec"]["template"]["metadata"]["annotations"]
    assert annotations["checksum/config"].startswith("#")
    assert len(annotations["checksum/config"]) == 5


def test_annotations_of_objects_that_are_read_stay():
    assert project("Pod", pod("web-1"))["metadata"]["annotations"] == {"kubeloop.dev/run-seconds": "5"}


def test_last_applied_configuration_is_projected():
    obj = deployment("web")
    obj["metadata"]["annotations"] = {LAST_APPLIED: msgspec.json.encode(deployment("web")).decode()}
    projected = project("Deployment", obj)
    applied = msgspec.json.decode(projected["metadata"]["annotations"][LAST_APPLIED])
    assert applied["spec"] == projected["spec"]
    obj["metadata"]["annotations"] = {LAST_APPLIED: "not JSON hunter2"}
    assert "annotations" not in project("Deployment", obj)["metadata"]


def test_volumes_of_pods_are_those_that_decide_about_nodes():
    obj = pod("web-1", owner=OWNER)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    obj["spec"]["volumes"] = [{"name": "token", "secret": {"secretName": "token"}}, claim]
    assert project("Pod", obj)["spec"]["volumes"] == [claim]


def test_node_has_resources_images_and_conditions():
    projected = project(
        "Node", node("node-1", images=[{"names": ["a:1"], "sizeBytes": 5}], addresses=[{"address": "1"}])
    )
    assert projected["status"]["images"] == [{"names": ["a:1"], "sizeBytes": 5}]
    assert projected["status"]["conditions"] == [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    assert "addresses" not in projected["status"]
    assert projected["spec"] == {}


@pytest.mark.parametrize("kind", ["Deployment", "Job", "Node", "Pod", "PersistentVolumeClaim", "PodDisruptionBudget"])
def test_conditions_have_their_times_and_reasons_but_no_messages_and_heartbeats(kind: str):
    needed = {
        "type": "Progressing",
        "status": "True",
        "reason": "ReplicaSetUpdated",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "lastUpdateTime": "2026-01-01T00:05:00Z",  # from which a Deployment's progress deadline counts
        "observedGeneration": 3,
    }
    left_out = {"message": "hunter2", "lastHeartbeatTime": "2026-01-01T00:09:00Z", "lastProbeTime": None}
    obj = {"kind": kind, "metadata": {"name": "web"}, "spec": {}, "status": {"conditions": [needed | left_out]}}
    assert project(kind, obj)["status"]["conditions"] == [needed]
