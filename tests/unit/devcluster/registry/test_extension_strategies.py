"""Strategies of signing requests, CustomResourceDefinitions and APIServices."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.registry.extension_strategies import (
    PREPARE_CREATE,
    PREPARE_UPDATE,
    SET_REQUESTER,
    prepare_for_approval_update,
    update_taint_time,
)

JSON = dict[str, Any]
SIGNING_REQUESTS = "certificatesigningrequests.certificates.k8s.io"
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


def test_requester_is_the_authenticated_user():
    obj = {"spec": {"username": "root", "uid": "0", "extra": {"a": ["b"]}, "signerName": "s"}}
    SET_REQUESTER[SIGNING_REQUESTS](obj, {"username": "jane", "groups": ["g"]})
    assert obj["spec"] == {"signerName": "s", "username": "jane", "groups": ["g"]}


@pytest.mark.parametrize(
    ("versions", "stored", "expected"),
    [
        pytest.param([{"name": "v1", "storage": True}], ["v1"], ["v1"], id="same storage version"),
        pytest.param([{"name": "v1"}, {"name": "v2", "storage": True}], ["v1"], ["v1", "v2"], id="new storage version"),
    ],
)
def test_stored_versions_of_a_definition_grow(versions: list[JSON], stored: list[str], expected: list[str]):
    obj = {"spec": {"versions": versions}, "status": {"storedVersions": stored}}
    PREPARE_UPDATE[DEFINITIONS](obj, {})
    assert obj["status"]["storedVersions"] == expected


def test_new_definition_starts_with_its_storage_version():
    obj: JSON = {"spec": {"versions": [{"name": "v1"}, {"name": "v2", "storage": True}]}, "status": {"x": 1}}
    PREPARE_CREATE[DEFINITIONS](obj, "t1")
    names = {"plural": "", "kind": ""}
    assert obj["status"] == {"conditions": None, "acceptedNames": names, "storedVersions": ["v2"]}


@pytest.mark.parametrize(
    ("spec", "status", "reason"), [({}, "True", "Local"), ({"service": {"name": "s"}}, "False", "NotServed")]
)
def test_only_local_api_services_are_available(spec: JSON, status: str, reason: str):
    obj: JSON = {"spec": spec}
    PREPARE_CREATE["apiservices.apiregistration.k8s.io"](obj, "t1")
    (condition,) = obj["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Available", status, reason)


def test_approval_changes_only_conditions():
    old = {"metadata": {"name": "a"}, "spec": {"signerName": "s"}, "status": {"certificate": "x"}}
    condition = {"type": "Approved", "status": "True", "lastUpdateTime": "t1"}
    sent = {
        "metadata": {"name": "a", "labels": {"x": "y"}, "managedFields": [1]},
        "spec": {},
        "status": {"certificate": "y", "conditions": [condition]},
    }
    assert prepare_for_approval_update(sent, old) == {
        "metadata": {"name": "a", "managedFields": [1]},
        "spec": {"signerName": "s"},
        "status": {"certificate": "x", "conditions": [{**condition, "lastTransitionTime": "t1"}]},
    }


def test_time_of_a_device_taint_follows_its_effect():
    def updated(**changes: str) -> str:
        old = {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
        taint = old | changes
        update_taint_time(taint, old, lambda: "2026-03-01T00:00:00Z")
        return taint["timeAdded"]

    assert updated(key="other") == "2026-01-01T00:00:00Z"
    assert updated(effect="NoExecute") == "2026-03-01T00:00:00Z"
    assert updated(effect="NoExecute", timeAdded="2026-02-01T00:00:00Z") == "2026-02-01T00:00:00Z"
