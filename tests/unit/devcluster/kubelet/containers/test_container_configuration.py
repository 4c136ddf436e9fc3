"""Errors in the configuration of a container: environment, subPathExpr, user."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kubeloop.devcluster.kubelet.containers.container_configuration import NodeFacts, configuration_error

JSON = dict[str, Any]
FACTS = NodeFacts("172.16.0.1", "10.0.0.1", {"cpu": "8", "memory": "32Gi"})
OBJECTS: dict[tuple[str, str], JSON] = {
    ("ConfigMap", "settings"): {"kind": "ConfigMap", "data": {"folder": "logs", "up": ".."}},
    ("Secret", "token"): {"kind": "Secret", "data": {"folder": base64.b64encode(b"/root").decode()}},
}


def error(container: JSON, *, annotations: dict[str, str] | None = None, **spec: Any) -> str:
    """Return the message of the error, "" for none."""
    container = {"name": "web", **container}
    metadata = {"name": "p", "namespace": "default", "uid": "u", "annotations": annotations or {}}
    pod = {"metadata": metadata, "spec": {"containers": [container, {"name": "side"}], "nodeName": "n", **spec}}
    missing = configuration_error(pod, container, lambda kind, name: OBJECTS.get((kind, name)), lambda: FACTS)
    return "" if missing is None else missing.message


def test_plain_container_has_no_error():
    assert error({}) == ""
    assert error({"env": [{"name": "A", "value": "b"}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}) == ""


def test_missing_object_of_the_environment_comes_first():
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k"}}}]
    assert error({"env": env, "securityContext": {"runAsNonRoot": True, "runAsUser": 0}}) == (
        'configmap "none" not found'
    )


@pytest.mark.parametrize(("container", "message"), [("side", ""), ("other", "container other not found")])
def test_resource_field_of_missing_container_is_an_error(container: str, message: str):
    source = {"resourceFieldRef": {"containerName": container, "resource": "limits.cpu"}}
    assert error({"env": [{"name": "CPU", "valueFrom": source}]}) == message


def from_field(path: str) -> JSON:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ({"value": "logs"}, ""),
        ({"value": ""}, "missing value for A"),
        ({"value": ".."}, "unable to provision SubPath `..`: must not contain '..'"),
        ({"value": "/tmp"}, "error SubPath `/tmp` must not be an absolute path"),
        ({"value": "$(B)/x"}, ""),
        ({"value": "$$(B)"}, ""),
        (from_field("metadata.name"), ""),
        (from_field("metadata.annotations['folder']"), "missing value for A"),
        (from_field("spec.serviceAccountName"), "missing value for A"),
        (from_field("status.podIP"), ""),
        ({"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}, ""),
        ({"valueFrom": {"configMapKeyRef": {"name": "settings", "key": "folder"}}}, ""),
        ({"valueFrom": {"configMapKeyRef": {"name": "settings", "key": "x", "optional": True}}}, "missing value for A"),
        (
            {"valueFrom": {"secretKeyRef": {"name": "token", "key": "folder"}}},
            "error SubPath `/root` must not be an absolute path",
        ),
    ],
)
def test_sub_path_expression_needs_a_relative_path(variable: JSON, message: str):
    mount = {"name": "v", "mountPath": "/v", "subPathExpr": "$(A)"}
    assert error({"env": [{"name": "B", "value": "b"}, {"name": "A", **variable}], "volumeMounts": [mount]}) == message


def test_sub_path_expression_reads_all_of_a_config_map():
    mount = {"name": "v", "mountPath": "/v", "subPathExpr": "$(X_folder)/$(X_up)"}
    env_from = [{"prefix": "X_", "configMapRef": {"name": "settings"}}]
    assert error({"envFrom": env_from, "volumeMounts": [mount]}) == (
        "unable to provision SubPath `logs/..`: must not contain '..'"
    )


def test_sub_path_expression_lists_missing_variables():
    mount = {"name": "v", "mountPath": "/v", "subPathExpr": "$(Z)/$(A)/$(WEB_SERVICE_HOST)"}
    assert error({"volumeMounts": [mount]}) == "missing value for A, Z"


ROOT = 'container\'s runAsUser breaks non-root policy (pod: "p_default(u)", container: web)'


@pytest.mark.parametrize(
    ("of_pod", "own", "message"),
    [
        ({}, {"runAsNonRoot": True, "runAsUser": 0}, ROOT),
        ({"runAsNonRoot": True}, {"runAsUser": 0}, ROOT),
        ({"runAsNonRoot": True, "runAsUser": 0}, {}, ROOT),
        ({"runAsNonRoot": True, "runAsUser": 0}, {"runAsUser": 1000}, ""),
        ({"runAsNonRoot": True, "runAsUser": 0}, {"runAsNonRoot": False}, ""),
        ({"runAsUser": 0}, {}, ""),
        ({"runAsNonRoot": True}, {}, ""),  # the user of the image is unknown
    ],
)
def test_root_user_breaks_non_root_policy(of_pod: JSON, own: JSON, message: str):
    assert error({"securityContext": own}, securityContext=of_pod) == message
