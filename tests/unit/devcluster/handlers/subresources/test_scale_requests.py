"""Scale requests: field ownership of replicas for each writer and path, as in kube-apiserver v1.36."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
SCALED_SETS = Path(__file__).parents[4] / "support" / "comparison" / "scaled_sets.yaml"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
DEPLOYMENT: JSON = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}


def scale(replicas: Any, **more: Any) -> JSON:
    spec = {} if replicas is None else {"replicas": replicas}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", **more}, "spec": spec}


@pytest.fixture
async def api() -> InProcessApi:
    api = InProcessApi()
    api.create(f"{DEPLOYMENTS}?fieldManager=maker", DEPLOYMENT)
    return api


def apply(api: InProcessApi, manager: str, replicas: Any, *, force: bool = False, **more: Any) -> tuple[int, JSON]:
    query = f"fieldManager={manager}{'&force=true' if force else ''}"
    return api("PATCH", f"{DEPLOYMENTS}/d/scale?{query}", scale(replicas, **more), APPLY)


def owners(api: InProcessApi) -> list[str]:
    """Return the owners of replicas: "maker Update", "one Apply scale"."""
    entries = api("GET", f"{DEPLOYMENTS}/d")[1]["metadata"].get("managedFields", [])
    owning = [entry for entry in entries if "f:replicas" in entry["fieldsV1"].get("f:spec", {})]
    assert {entry["apiVersion"] for entry in owning} <= {"apps/v1"}
    return [
        " ".join(filter(None, (entry["manager"], entry["operation"], entry.get("subresource")))) for entry in owning
    ]


async def test_replicas_at_a_path_that_the_schema_lacks_are_dropped():
    api, sets = InProcessApi(), "/apis/scaled.example.com/v1/namespaces/default/sets"
    definition = yaml.safe_load(SCALED_SETS.read_text())
    definition["spec"]["versions"][0]["subresources"]["scale"]["specReplicasPath"] = ".spec.sise"
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    api.create(sets, {"apiVersion": "scaled.example.com/v1", "kind": "Set", "metadata": {"name": "d"}, "spec": {}})
    written = api.succeed("PUT", f"{sets}/d/scale", scale(5))
    assert written["spec"] == {}
    stored = api.succeed("GET", f"{sets}/d")
    assert (stored["spec"], stored["metadata"]["generation"]) == ({}, 2)
    status, content = api("GET", f"{sets}/d/scale")
    message = 'Internal error occurred: the spec replicas field ".spec.sise" does not exist'
    assert (status, content["message"]) == (500, message)


async def test_applied_scale_with_other_replicas_conflicts(api: InProcessApi):
    status, response = apply(api, "one", 4)
    assert (status, response["message"]) == (
        409,
        'Apply failed with 1 conflict: conflict with "maker" using autoscaling/v1: .spec.replicas',
    )
    assert owners(api) == ["maker Update"]


async def test_equal_replicas_are_shared_and_force_takes_them(api: InProcessApi):
    assert apply(api, "one", 3)[0] == apply(api, "two", 3)[0] == 200
    assert owners(api) == ["one Apply scale", "two Apply scale"]
    status, response = apply(api, "one", 5)
    assert (status, response["details"]["causes"][0]["message"]) == (
        409,
        'conflict with "two" with subresource "scale"',
    )
    status, response = apply(api, "one", 5, force=True)
    assert (status, response["spec"]) == (200, {"replicas": 5})
    assert owners(api) == ["one Apply scale"]


async def test_applied_scale_entry_has_no_time(api: InProcessApi):
    apply(api, "one", 7, force=True)
    entries = api("GET", f"{DEPLOYMENTS}/d")[1]["metadata"]["managedFields"]
    assert [(entry["manager"], "time" in entry) for entry in entries] == [("one", False), ("maker", True)]


async def test_apply_without_replicas_releases_them(api: InProcessApi):
    apply(api, "one", 7, force=True)
    status, response = api("PATCH", f"{DEPLOYMENTS}/d/scale?fieldManager=one", {**scale(None), "spec": None}, APPLY)
    assert (status, response["spec"]) == (200, {})
    manifest = {name: value for name, value in scale(None).items() if name != "spec"}
    assert api("PATCH", f"{DEPLOYMENTS}/d/scale?fieldManager=one", manifest, APPLY)[0] == 200
    assert owners(api) == []


async def test_replicas_of_applied_deployment_belong_to_its_manager(api: InProcessApi):
    manifest = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 5}}
    assert api("PATCH", f"{DEPLOYMENTS}/d?fieldManager=whole&force=true", manifest, APPLY)[0] == 200
    assert apply(api, "other", 5)[0] == 200
    assert sorted(owners(api)) == ["other Apply scale", "whole Apply"]
    assert apply(api, "other", 4)[1]["details"]["causes"][0]["message"] == 'conflict with "whole"'
    assert apply(api, "other", 4, force=True)[0] == 200
    assert owners(api) == ["other Apply scale"]
    status, response = api("PATCH", f"{DEPLOYMENTS}/d?fieldManager=whole", DEPLOYMENT, APPLY)
    assert (status, response["details"]["causes"][0]["message"]) == (
        409,
        'conflict with "other" with subresource "scale"',
    )


async def test_unowned_replicas_conflict_with_before_first_apply(api: InProcessApi):
    api("PATCH", f"{DEPLOYMENTS}/d", {"metadata": {"managedFields": [{}]}}, MERGE)
    status, response = apply(api, "first", 4)
    message = 'conflict with "before-first-apply" with subresource "scale" using autoscaling/v1'
    assert (status, response["details"]["causes"][0]["message"]) == (409, message)
    assert apply(api, "first", 4, force=True)[0] == 200
    assert owners(api) == ["first Apply scale"]


async def test_updated_scale_is_owned_by_its_writer(api: InProcessApi):
    path = f"{DEPLOYMENTS}/d/scale?fieldManager=putter"
    assert api("PUT", path, scale(6))[0] == 200
    assert owners(api) == ["putter Update scale"]
    assert api("PUT", path, scale(0))[0] == 200
    assert owners(api) == []
    assert api("PUT", path, scale(6))[0] == 200
    assert owners(api) == [], "replicas without an owner get none by an update"


@pytest.mark.parametrize(
    ("query", "config", "status", "message"),
    [
        ("force=true", scale(3), 422, "fieldManager: Required value: is required for apply patch"),
        ("fieldManager=m", {**scale(3), "apiVersion": "apps/v1"}, 400, "invalid object type: apps/v1, Kind=Scale"),
        ("fieldManager=m", scale(3, name="e"), 400, "the name of the object (e) does not match the name on the URL"),
        ("fieldManager=m", scale(3, namespace="x"), 400, "does not match the namespace sent on the request"),
        ("fieldManager=m", scale(3, managedFields=[]), 400, "metadata.managedFields must be nil"),
        ("fieldManager=m", scale(3, uid="x"), 409, 'on deployments/scale.apps "d": Precondition failed'),
        ("fieldManager=m", scale(3, resourceVersion="1"), 409, "the object has been modified"),
        ("fieldManager=m&force=true", scale(-1), 422, "spec.replicas: Invalid value: -1: must be greater than or"),
        ("fieldManager=m&force=true", scale("3"), 500, ".spec.replicas: expected numeric (int or float), got string"),
        ("fieldManager=m&force=true", scale(3_000_000_000), 422, "Invalid value: -1294967296: must be greater than or"),
        ("fieldManager=m", {**scale(3), "foo": 1}, 500, ".foo: field not declared in schema"),
    ],
)
async def test_invalid_scale_configurations_are_rejected(
    api: InProcessApi, query: str, config: JSON, status: int, message: str
):
    response = api("PATCH", f"{DEPLOYMENTS}/d/scale?{query}", config, APPLY)
    assert (response[0], message in response[1]["message"]) == (status, True), response
    assert owners(api) == ["maker Update"]


async def test_scale_of_absent_deployment_is_not_found(api: InProcessApi):
    status, response = api("PATCH", f"{DEPLOYMENTS}/none/scale?fieldManager=m", scale(3), APPLY)
    assert (status, response["message"]) == (404, 'deployments.apps "none" not found')


async def test_dry_run_keeps_replicas_and_owner(api: InProcessApi):
    path = f"{DEPLOYMENTS}/d/scale?fieldManager=m&force=true&dryRun=All"
    assert api("PATCH", path, scale(9), APPLY)[1]["spec"] == {"replicas": 9}
    assert owners(api) == ["maker Update"]


async def test_custom_resource_scale_update_without_kind_drops_owner(api: InProcessApi):
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(SCALED_SETS.read_text()))
    path = "/apis/scaled.example.com/v1/namespaces/default/sets"
    manifest = {"apiVersion": "scaled.example.com/v1", "kind": "Set", "metadata": {"name": "d"}, "spec": {"size": 3}}
    api.create(f"{path}?fieldManager=maker", manifest)
    assert api("PATCH", f"{path}/d/scale?fieldManager=one", scale(3), APPLY)[0] == 200
    entries = api("GET", f"{path}/d")[1]["metadata"]["managedFields"]
    assert {entry["manager"]: entry["fieldsV1"] for entry in entries}["one"] == {"f:spec": {"f:size": {}}}
    status, response = api("PATCH", f"{path}/d/scale?fieldManager=one&force=true", scale(4), APPLY)
    assert (status, "request to convert CR to an invalid group/version" in response["message"]) == (500, True)
    assert api("PUT", f"{path}/d/scale?fieldManager=putter", scale(4))[1]["spec"] == {"replicas": 4}
    entries = api("GET", f"{path}/d")[1]["metadata"]["managedFields"]
    assert [(entry["manager"], "time" in entry) for entry in entries] == [("putter", False), ("maker", True)]
    manifest = {"metadata": {"name": "d"}, "spec": {"replicas": 5}}
    assert api("PUT", f"{path}/d/scale?fieldManager=putter", manifest)[1]["spec"] == {"replicas": 5}
    entries = api("GET", f"{path}/d")[1]["metadata"].get("managedFields", [])
    assert [entry["manager"] for entry in entries] == ["maker"]
    assert api("PATCH", f"{path}/d/scale?fieldManager=one", scale(5), APPLY)[0] == 500, "replicas have no owner"


@pytest.mark.parametrize(("mode", "code"), [("Strict", 400), ("Warn", 200), ("Ignore", 200)])
async def test_strict_errors_of_a_custom_scale_name_no_field(mode: str, code: int):
    api, sets = InProcessApi(), "/apis/scaled.example.com/v1/namespaces/default/sets"
    definition = yaml.safe_load(SCALED_SETS.read_text())
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    names = {"kind": "Set", "apiVersion": "scaled.example.com/v1", "metadata": {"name": "d"}}
    api.create(sets, {**names, "spec": {"size": 1}})
    path = f"{sets}/d/scale?fieldValidation={mode}"
    body = {**scale(2, namespace="default"), "x": 1}
    status, content = api("PUT", path, body)
    assert status == code, content
    assert api.warnings == (['299 - "unknown field \\"x\\""'] if mode == "Warn" else [])
    if code == 400:
        assert content["message"].startswith("no kind is registered for the type v1.Scale in scheme ")
