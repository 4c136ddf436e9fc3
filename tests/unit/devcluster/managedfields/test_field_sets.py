"""Field ownership after creates and updates: managedFields."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.managedfields.field_sets import (
    entries_of_known_versions,
    initial_entries,
    initial_fields,
    sorted_entries,
    sorted_fields,
    subtract,
    track_create,
    union,
)
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS
from support.apiserver.api_requests import InProcessApi

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PORT, OTHER, SECOND = {"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b"}, {"containerPort": 81}
EIGHTY, EIGHTY_ONE = 'k:{"containerPort":80,"protocol":"TCP"}', 'k:{"containerPort":81,"protocol":"TCP"}'


@pytest.fixture
async def api() -> InProcessApi:
    api = InProcessApi()
    if api("GET", "/api/v1/namespaces/default")[0] == 404:
        api.create("/api/v1/namespaces", {"metadata": {"name": "default"}})
    return api


@pytest.mark.parametrize(
    "names",
    [
        [".", "f:a", "f:aa", "f:b"],
        [".", 'k:{"containerPort":80,"protocol":"TCP"}', 'k:{"containerPort":443,"protocol":"TCP"}'],
        ['k:{"name":"a"}', 'k:{"name":"b"}', 'v:"a"', "v:true", "i:2", "i:10"],
        ["v:2", "v:10", 'v:"1"', "v:false", "v:true", "v:null"],
    ],
)
def test_fields_are_in_the_order_of_go(names: list[str]):
    fields = {name: {inner: {} for inner in ("f:z", "f:a")} for name in reversed(names)}
    ordered = sorted_fields(fields)
    assert [*ordered] == names
    assert all([*inner] == ["f:a", "f:z"] for inner in ordered.values())


def test_sorted_fields_returns_the_same_set_when_in_order():
    fields: JSON = {"f:a": {".": {}, EIGHTY: {"f:x": {}, "f:y": {}}}, "f:b": {}}
    assert sorted_fields(fields) is fields


def test_sorted_fields_sorts_only_what_changed():
    old = sorted_fields({"f:metadata": {"f:labels": {"f:b": {}, "f:d": {}}}, "f:spec": {"f:y": {}, "f:x": {}}})
    fields = union(old, {"f:metadata": {"f:labels": {"f:c": {}}}, "f:data": {}})
    ordered = sorted_fields(fields, old)
    assert [*ordered] == ["f:data", "f:metadata", "f:spec"]
    assert [*ordered["f:metadata"]["f:labels"]] == ["f:b", "f:c", "f:d"]
    assert ordered["f:spec"] is old["f:spec"]


@pytest.mark.parametrize("count", [2, 500])
async def test_created_objects_with_equal_fields_have_sorted_sets(api: InProcessApi, count: int):
    data = {f"key-{number:03}": "v" for number in reversed(range(count))}
    for name in ("a", "b"):
        created = api.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": data})
        (fields,) = owners(created).values()
        assert [*fields["f:data"]] == [".", *(f"f:{key}" for key in sorted(data))]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"annotations": {"b": "1", "a": "2"}},
        {"labels": {"app": "other"}},
        {"labels": {"tier": "web"}},
        {"finalizers": ["example.com/a"]},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "1"}]},
        {"annotations": {"a": "x" * 5000}},
    ],
)
def test_new_pods_of_equal_fields_have_the_fields_of_each(changes: JSON):
    spec = {"containers": [{"name": "main", "image": "app:1", "ports": [PORT]}], "restartPolicy": "Always"}
    served = get_served_resource(PODS)
    for number in range(2):
        metadata = {"name": f"pod-{number}", "namespace": "default", "labels": {"app": f"a{number}"}, **changes}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        expected = sorted_fields(initial_fields(served, pod, subresource=""))
        track_create(served, pod, Writer("someone"), lambda: "now")
        (entry,) = pod["metadata"]["managedFields"]
        assert msgspec.json.encode(entry["fieldsV1"]) == msgspec.json.encode(expected)


async def test_applied_fields_labels_and_data_are_sorted(api: InProcessApi):
    path, apply = f"{CONFIG_MAPS}/c?fieldManager=m", "application/apply-patch+yaml"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {"b": "", "a": ""}}}
    api("PATCH", path, {**config, "data": {"z": "1", "b": "2"}}, apply)
    applied = api.succeed("PATCH", f"{path}2", {**config, "data": {"y": "1", "a": "2"}}, apply)
    assert [*applied["data"]] == ["a", "b", "y", "z"]
    assert [*applied["metadata"]["labels"]] == ["a", "b"]
    assert [[*fields] for fields in owners(applied).values()] == [["f:data", "f:metadata"]] * 2
    assert {manager: [*fields["f:data"]] for manager, fields in owners(applied).items()} == {
        "m": ["f:b", "f:z"],
        "m2": ["f:a", "f:y"],
    }


def owners(obj: JSON) -> dict[str, JSON]:
    """Return field sets by manager."""
    return {item.get("manager", ""): item["fieldsV1"] for item in obj["metadata"].get("managedFields", ())}


def entry(manager: str = "other", key: str = "theirs", **changed: Any) -> JSON:
    fields = {"f:data": {f"f:{key}": {}}}
    default = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**default, **changed}


def updated_with_entries(api: InProcessApi, *entries: JSON) -> JSON:
    api.create(f"{CONFIG_MAPS}?fieldManager=creator", {"metadata": {"name": "a"}, "data": {"mine": "1"}})
    body = {"metadata": {"name": "a", "managedFields": list(entries)}, "data": {"mine": "2"}}
    return api("PUT", f"{CONFIG_MAPS}/a?fieldManager=writer", body)[1]


async def test_create_keeps_entries_of_the_request(api: InProcessApi):
    body = {"metadata": {"name": "a", "managedFields": [entry()]}, "data": {"mine": "1"}}
    response = api("POST", f"{CONFIG_MAPS}?fieldManager=creator", body)[1]
    assert owners(response) == {
        "other": {"f:data": {"f:theirs": {}}},
        "creator": {"f:data": {".": {}, "f:mine": {}}},
    }


async def test_update_replaces_entries(api: InProcessApi):
    response = updated_with_entries(api, entry("one"), entry("two", operation="Apply"), entry("one", "last"))
    assert owners(response) == {
        "two": {"f:data": {"f:theirs": {}}},
        "one": {"f:data": {"f:last": {}}},
        "writer": {"f:data": {"f:mine": {}}},
    }


@pytest.mark.parametrize(
    "invalid",
    [
        {"operation": "Guess"},
        {"apiVersion": ""},
        {"fieldsType": "FieldsV2"},
        {"fieldsV1": {"data": {}}},
        {"fieldsV1": {"k:{": {}}},
    ],
)
async def test_invalid_entries_are_ignored(api: InProcessApi, invalid: JSON):
    assert owners(updated_with_entries(api, entry(**invalid)))["creator"] == {"f:data": {}}


async def test_unknown_path_elements_are_dropped(api: InProcessApi):
    assert owners(updated_with_entries(api, entry(fieldsV1={"x:later": {}}))) == {"writer": {"f:data": {"f:mine": {}}}}


@pytest.mark.parametrize("version", ["v2", "apps/v1", "events.k8s.io/v1"])
async def test_entries_of_a_version_without_the_kind_are_dropped(api: InProcessApi, version: str):
    assert owners(updated_with_entries(api, entry(apiVersion=version))) == {"writer": {"f:data": {"f:mine": {}}}}


async def test_entry_with_invalid_version_drops_all_entries(api: InProcessApi):
    assert owners(updated_with_entries(api, entry("known"), entry("unknown", apiVersion="a/b/c"))) == {}


async def test_unprintable_characters_of_a_manager_are_invalid(api: InProcessApi):
    status = updated_with_entries(api, entry("é\u200b\a\u00a0"))
    messages = [
        f'metadata.managedFields[0].manager: Invalid value: "é\\u200b\\a\\u00a0": invalid character {character}'
        for character in ("U+200B (at position 2)", "U+0007 (at position 5)", "U+00A0 (at position 6)")
    ]
    assert status["message"] == f'ConfigMap "a" is invalid: [{", ".join(messages)}]'
    assert len(status["details"]["causes"]) == 4 * 3  # kube-apiserver validates four times


@pytest.mark.parametrize("reset", [[], [{}]])
async def test_update_resets_entries(api: InProcessApi, reset: list[JSON]):
    assert owners(updated_with_entries(api, *reset)) == {}


async def test_oldest_of_more_than_ten_update_entries_are_merged(api: InProcessApi):
    api.create(f"{CONFIG_MAPS}?fieldManager=creator", {"metadata": {"name": "a"}, "data": {"mine": "1"}})
    for number in range(11):
        patch = {"data": {f"k{number}": ""}}
        changed = api("PATCH", f"{CONFIG_MAPS}/a?fieldManager=m{number}", patch, "application/merge-patch+json")[1]
    response = owners(changed)
    assert len(response) == 10
    merged = response.pop("ancient-changes")["f:data"]
    assert sorted(name for fields in [*response.values(), {"f:data": merged}] for name in fields["f:data"]) == [
        ".", *(f"f:k{number}" for number in sorted(range(11), key=str)), "f:mine"
    ]  # fmt: skip


async def test_items_with_duplicate_keys_are_owned_as_a_whole(api: InProcessApi):
    path = "/apis/apps/v1/namespaces/default/deployments"
    body: JSON = {
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}},
    }

    def with_ports(*ports: JSON) -> JSON:
        body["spec"]["template"]["spec"] = {"containers": [{"name": "c", "image": "i", "ports": list(ports)}]}
        return body

    def owned(obj: JSON) -> dict[str, JSON]:
        result = {}
        for manager, fields in owners(obj).items():
            container = fields["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"c"}']
            result[manager] = {key: sorted(fields_) for key, fields_ in container["f:ports"].items() if key != "."}
        return result

    port_fields = [".", "f:containerPort", "f:name", "f:protocol"]
    assert owned(api("POST", f"{path}?fieldManager=creator", with_ports(PORT, OTHER, SECOND))[1]) == {
        "creator": {EIGHTY: [], EIGHTY_ONE: [".", "f:containerPort", "f:protocol"]}
    }
    assert owned(api("PUT", f"{path}/a?fieldManager=writer", with_ports(PORT))[1]) == {
        "creator": {}, "writer": {EIGHTY: port_fields}
    }  # fmt: skip
    assert owned(api("PUT", f"{path}/a?fieldManager=writer", with_ports(OTHER, PORT))[1]) == {
        "creator": {}, "writer": {EIGHTY: []}
    }  # fmt: skip
    assert owned(api("PUT", f"{path}/a?fieldManager=again", with_ports(PORT, OTHER))[1]) == {
        "creator": {}, "again": {EIGHTY: []}
    }  # fmt: skip


async def test_namespace_of_applied_cluster_scoped_object_is_dropped(api: InProcessApi):
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "r", "namespace": "n"},
    }
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/r?fieldManager=m"
    for expected in (201, 200):
        status, response = api("PATCH", path, role, "application/apply-patch+yaml")
        assert (status, "namespace" in response["metadata"]) == (expected, False)


async def test_applied_bytes_must_be_base64(api: InProcessApi):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "x&"}}
    path = "/api/v1/namespaces/default/secrets/s?fieldManager=m"
    status, response = api("PATCH", path, secret, "application/apply-patch+yaml")
    assert status == 500
    assert response["message"].endswith("error decoding from json: illegal base64 data at input byte 1")


@pytest.mark.parametrize(
    ("fields", "removed", "remaining"),
    [
        pytest.param({"f:a": {}, "f:b": {}}, {"f:a": {}}, {"f:b": {}}, id="field"),
        pytest.param({"f:a": {"f:x": {}, "f:y": {}}}, {"f:a": {"f:x": {}}}, {"f:a": {"f:y": {}}}, id="nested field"),
        pytest.param({"f:a": {"f:x": {}}}, {"f:a": {"f:x": {}}}, {}, id="last nested field"),
        pytest.param({"f:a": {}}, {"f:b": {}}, {"f:a": {}}, id="another field"),
    ],
)
def test_difference_of_field_sets(fields: JSON, removed: JSON, remaining: JSON):
    assert subtract(fields, removed) == remaining


@pytest.mark.parametrize(
    ("requested", "entries"),
    [
        pytest.param([], [], id="empty list resets the entries"),
        pytest.param([{}], [], id="empty entry resets the entries"),
        pytest.param(None, [entry()], id="absent list keeps the entries"),
        pytest.param([entry(operation="Delete")], [entry()], id="invalid operation keeps the entries"),
        pytest.param([entry(fieldsV1={"x": {}})], [entry()], id="invalid fields keep the entries"),
        pytest.param([entry("b"), entry("a")], [entry("a"), entry("b")], id="valid entries are sorted"),
    ],
)
def test_entries_that_a_write_starts_from(requested: Any, entries: list[JSON]):
    assert initial_entries(requested, [entry()]) == entries


def test_entries_of_applies_come_first_then_by_time():
    late, early = entry("a", time="t2"), entry("b", time="t1")
    applied = entry("c", operation="Apply", time="t3")
    assert sorted_entries([late, early, applied]) == [applied, early, late]


@pytest.mark.parametrize(
    ("api_version", "entries"),
    [("apps/v1", 1), ("apps/v9", 0), ("v1", 0), ("a/b/c", None)],
    ids=["known version", "version without the kind", "core group", "malformed version drops all entries"],
)
def test_entries_of_other_versions_are_dropped(api_version: str, entries: int | None):
    known = entries_of_known_versions(get_served_resource(DEPLOYMENTS), [entry(apiVersion=api_version)])
    assert (None if known is None else len(known)) == entries


async def test_status_of_a_pod_group_is_owned_and_its_metadata_is_not():
    api = InProcessApi(settings=ServingSettings(feature_gates=FeatureGates({"GenericWorkload": True})))
    path = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
    api.create(path, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"basic": {}}}})
    times = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    condition = {"type": "Ready", "status": "True", "reason": "R", "message": "", **times}
    patch = {"metadata": {"labels": {"a": "b"}}, "status": {"conditions": [condition]}}
    (entry,) = api.succeed("PATCH", f"{path}/g", patch)["metadata"]["managedFields"]
    assert set(entry["fieldsV1"]) == {"f:metadata", "f:spec", "f:status"}
    patch["metadata"]["labels"] = {"c": "d"}
    entries = api.succeed("PATCH", f"{path}/g/status", patch)["metadata"]["managedFields"]
    assert [set(entry["fieldsV1"]) for entry in entries if entry.get("subresource")] == [{"f:status"}]


async def test_field_that_was_null_is_not_owned_itself(api: InProcessApi):
    api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "a"}})
    secret = api.create("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    bound = {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": secret["metadata"]["uid"]}
    request = {"spec": {"boundObjectRef": bound}}  # null in Go's encoding of an empty TokenRequest
    (entry,) = api.create("/api/v1/namespaces/default/serviceaccounts/a/token", request)["metadata"]["managedFields"]
    owned = entry["fieldsV1"]["f:spec"]["f:boundObjectRef"]
    assert owned == {"f:apiVersion": {}, "f:kind": {}, "f:name": {}, "f:uid": {}}
