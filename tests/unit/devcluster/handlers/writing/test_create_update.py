"""Create and update of objects."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.handlers.writing.create_update import check_version, is_finished_deletion
from kubeloop.kube.objects.resources import NAMESPACES
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param({"metadata": {"deletionTimestamp": "t"}}, True, id="marked"),
        pytest.param({"metadata": {}}, False, id="not marked"),
        pytest.param({"metadata": {"deletionTimestamp": "t", "finalizers": ["x"]}}, False, id="finalizer"),
        pytest.param({"metadata": {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 5}}, False, id="grace"),
        pytest.param(
            {"metadata": {"deletionTimestamp": "t"}, "spec": {"finalizers": ["kubernetes"]}},
            False,
            id="finalizer of a namespace",
        ),
    ],
)
def test_finished_deletion(obj: JSON, expected: bool):
    assert is_finished_deletion(get_served_resource(NAMESPACES), obj) is expected


def test_resource_version_that_is_no_number_is_an_error():
    for version in (None, "", "7"):
        check_version(version)
    with pytest.raises(StatusError) as raised:
        check_version("x")
    assert (raised.value.code, raised.value.message) == (500, 'strconv.ParseUint: parsing "x": invalid syntax')


async def test_generated_name_has_five_random_characters():
    created = InProcessApi().create(CONFIG_MAPS, {"metadata": {"generateName": "x" * 70}})
    name = created["metadata"]["name"]
    assert (len(name), name[:58]) == (63, "x" * 58)
    assert set(name[58:]) <= set("bcdfghjklmnpqrstvwxz2456789")


@pytest.mark.parametrize(
    ("metadata", "code", "message"),
    [
        ({"name": "a"}, 409, 'configmaps "a" already exists'),
        ({"name": "b", "resourceVersion": "1"}, 500, "resourceVersion should not be set on objects to be created"),
        (
            {"name": "b", "namespace": "other"},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
)
async def test_create_is_refused(metadata: JSON, code: int, message: str):
    api = InProcessApi()
    api.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    status, response = api("POST", CONFIG_MAPS, {"metadata": metadata})
    assert (status, response["message"]) == (code, message)


async def test_update_without_changes_keeps_the_revision():
    api = InProcessApi()
    created = api.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    updated = api.succeed("PUT", f"{CONFIG_MAPS}/a", created)
    assert updated["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    changed = api.succeed("PUT", f"{CONFIG_MAPS}/a", {**created, "data": {"x": "2"}})
    assert changed["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]


async def test_update_from_an_old_revision_is_a_conflict():
    api = InProcessApi()
    created = api.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    api.succeed("PUT", f"{CONFIG_MAPS}/a", {**created, "data": {"x": "2"}})
    status, response = api("PUT", f"{CONFIG_MAPS}/a", {**created, "data": {"x": "3"}})
    assert (status, response["message"]) == (
        409,
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to '
        "the latest version and try again",
    )


@pytest.mark.parametrize("subresource", ["", "status", "ephemeralcontainers", "resize"])
async def test_patch_of_the_uid_is_refused_through_every_subresource(subresource: str):
    api, path = InProcessApi(), "/api/v1/namespaces/default/pods"
    api.create(path, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    target = f"{path}/p/{subresource}".rstrip("/")
    status, content = api("PATCH", target, {"metadata": {"uid": "other"}})
    assert status == 422
    assert {cause["field"] for cause in content["details"]["causes"]} == {"metadata.uid"}


async def test_options_of_a_token_request_are_validated_before_its_body():
    api, path = InProcessApi(), "/api/v1/namespaces/default/serviceaccounts"
    api.create(path, {"metadata": {"name": "robot"}})
    status, content = api("POST", f"{path}/robot/token?dryRun=x", {"kind": "Other", "apiVersion": "v9"})
    assert (status, content["details"]["causes"][0]["field"]) == (422, "dryRun")


async def test_apply_reports_conflicts_before_a_name_that_differs_from_the_path():
    api, path = InProcessApi(), "/api/v1/namespaces/default/configmaps"
    api.create(path, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}
    target, form = f"{path}/a?fieldManager=me", "application/apply-patch+yaml"
    assert api("PATCH", target, {**config, "data": {"k": "x"}}, form)[0] == 409
    assert api("PATCH", target, config, form)[0] == 400
    assert api("GET", f"{path}/a")[1]["data"] == {"k": "v"}
