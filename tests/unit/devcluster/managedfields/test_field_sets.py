"""Who owns what after creates and updates: managedFields as kube-apiserver v1.36 writes them."""

from __future__ import annotations

from typing import Any

import pytest

from support.api_requests import InProcessApi

JSON = dict[str, Any]
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PORT, OTHER, SECOND = {"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b"}, {"containerPort": 81}
EIGHTY, EIGHTY_ONE = 'k:{"containerPort":80,"protocol":"TCP"}', 'k:{"containerPort":81,"protocol":"TCP"}'


@pytest.fixture
async def api() -> InProcessApi:
    api = InProcessApi()
    if api("GET", "/api/v1/namespaces/default")[0] == 404:
        api.create("/api/v1/namespaces", {"metadata": {"name": "default"}})
    return api


def owners(obj: JSON) -> dict[str, JSON]:
    """Sets of fields, by manager."""
    return {each.get("manager", ""): each["fieldsV1"] for each in obj["metadata"].get("managedFields", ())}


def entry(manager: str = "other", key: str = "theirs", **changed: Any) -> JSON:
    fields = {"f:data": {f"f:{key}": {}}}
    whole = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**whole, **changed}


def made(api: InProcessApi, *entries: JSON) -> JSON:
    api.create(f"{CONFIG_MAPS}?fieldManager=maker", {"metadata": {"name": "a"}, "data": {"mine": "1"}})
    body = {"metadata": {"name": "a", "managedFields": list(entries)}, "data": {"mine": "2"}}
    return api("PUT", f"{CONFIG_MAPS}/a?fieldManager=writer", body)[1]


async def test_a_new_object_keeps_the_owners_that_it_brings(api: InProcessApi):
    body = {"metadata": {"name": "a", "managedFields": [entry()]}, "data": {"mine": "1"}}
    found = api("POST", f"{CONFIG_MAPS}?fieldManager=maker", body)[1]
    assert owners(found) == {
        "other": {"f:data": {"f:theirs": {}}},
        "maker": {"f:data": {".": {}, "f:mine": {}}},
    }


async def test_an_update_may_replace_the_owners(api: InProcessApi):
    found = made(api, entry("one"), entry("two", operation="Apply"), entry("one", "last"))
    assert owners(found) == {
        "two": {"f:data": {"f:theirs": {}}},
        "one": {"f:data": {"f:last": {}}},
        "writer": {"f:data": {"f:mine": {}}},
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": "Guess"},
        {"apiVersion": ""},
        {"fieldsType": "FieldsV2"},
        {"fieldsV1": {"data": {}}},
        {"fieldsV1": {"k:{": {}}},
    ],
)
async def test_owners_that_cannot_be_read_are_not_taken(api: InProcessApi, wrong: JSON):
    assert owners(made(api, entry(**wrong)))["maker"] == {"f:data": {}}


async def test_path_elements_of_later_versions_are_left_out(api: InProcessApi):
    assert owners(made(api, entry(fieldsV1={"x:later": {}}))) == {"writer": {"f:data": {"f:mine": {}}}}


@pytest.mark.parametrize("version", ["v2", "apps/v1", "events.k8s.io/v1"])
async def test_owners_of_a_version_without_the_kind_are_not_taken(api: InProcessApi, version: str):
    assert owners(made(api, entry(apiVersion=version))) == {"writer": {"f:data": {"f:mine": {}}}}


async def test_one_owner_of_what_is_no_version_makes_all_forgotten(api: InProcessApi):
    assert owners(made(api, entry("known"), entry("unknown", apiVersion="a/b/c"))) == {}


async def test_each_character_of_a_manager_that_cannot_be_printed_is_told(api: InProcessApi):
    told = made(api, entry("é\u200b\a\u00a0"))
    wrong = [
        f'metadata.managedFields[0].manager: Invalid value: "é\\u200b\\a\\u00a0": invalid character {each}'
        for each in ("U+200B (at position 2)", "U+0007 (at position 5)", "U+00A0 (at position 6)")
    ]
    assert told["message"] == f'ConfigMap "a" is invalid: [{", ".join(wrong)}]'
    assert len(told["details"]["causes"]) == 4 * 3  # told as often as kube-apiserver looks


@pytest.mark.parametrize("reset", [[], [{}]])
async def test_owners_are_reset_by_an_update(api: InProcessApi, reset: list[JSON]):
    assert owners(made(api, *reset)) == {}


async def test_of_more_than_ten_updaters_the_oldest_become_one(api: InProcessApi):
    api.create(f"{CONFIG_MAPS}?fieldManager=maker", {"metadata": {"name": "a"}, "data": {"mine": "1"}})
    for number in range(11):
        patch = {"data": {f"k{number}": ""}}
        changed = api("PATCH", f"{CONFIG_MAPS}/a?fieldManager=m{number}", patch, "application/merge-patch+json")[1]
    found = owners(changed)
    assert len(found) == 10
    together = found.pop("ancient-changes")["f:data"]
    assert sorted(each for fields in [*found.values(), {"f:data": together}] for each in fields["f:data"]) == [
        ".", *(f"f:k{number}" for number in sorted(range(11), key=str)), "f:mine"
    ]  # fmt: skip


async def test_items_with_one_key_are_owned_as_a_whole(api: InProcessApi):
    path = "/apis/apps/v1/namespaces/default/deployments"
    body: JSON = {
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}},
    }

    def with_ports(*ports: JSON) -> JSON:
        body["spec"]["template"]["spec"] = {"containers": [{"name": "c", "image": "i", "ports": list(ports)}]}
        return body

    def owned(obj: JSON) -> dict[str, JSON]:
        found = {}
        for manager, fields in owners(obj).items():
            container = fields["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"c"}']
            found[manager] = {key: sorted(each) for key, each in container["f:ports"].items() if key != "."}
        return found

    whole = [".", "f:containerPort", "f:name", "f:protocol"]
    assert owned(api("POST", f"{path}?fieldManager=maker", with_ports(PORT, OTHER, SECOND))[1]) == {
        "maker": {EIGHTY: [], EIGHTY_ONE: [".", "f:containerPort", "f:protocol"]}
    }
    assert owned(api("PUT", f"{path}/a?fieldManager=writer", with_ports(PORT))[1]) == {
        "maker": {}, "writer": {EIGHTY: whole}
    }  # fmt: skip
    assert owned(api("PUT", f"{path}/a?fieldManager=writer", with_ports(OTHER, PORT))[1]) == {
        "maker": {}, "writer": {EIGHTY: []}
    }  # fmt: skip
    assert owned(api("PUT", f"{path}/a?fieldManager=again", with_ports(PORT, OTHER))[1]) == {
        "maker": {}, "again": {EIGHTY: []}
    }  # fmt: skip


async def test_an_applied_object_of_the_cluster_may_say_a_namespace(api: InProcessApi):
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "r", "namespace": "n"},
    }
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/r?fieldManager=m"
    for expected in (201, 200):
        status, found = api("PATCH", path, role, "application/apply-patch+yaml")
        assert (status, "namespace" in found["metadata"]) == (expected, False)


async def test_what_is_applied_as_bytes_is_base64(api: InProcessApi):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "x&"}}
    path = "/api/v1/namespaces/default/secrets/s?fieldManager=m"
    status, told = api("PATCH", path, secret, "application/apply-patch+yaml")
    assert status == 500
    assert told["message"].endswith("error decoding from json: illegal base64 data at input byte 1")
