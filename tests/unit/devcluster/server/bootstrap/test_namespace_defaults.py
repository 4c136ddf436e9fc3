"""The ServiceAccount and the ConfigMap of every namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.server.bootstrap.namespace_defaults import NamespaceDefaults
from kubeloop.devcluster.storage.data_directory import DataDirectory
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
NAMESPACES = "/api/v1/namespaces"
PATHS = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi(settings=ServingSettings(root_ca="certificate"))


def objects(api: InProcessApi, namespace: str) -> list[JSON | None]:
    """Return the two objects, None for a missing one."""
    responses = [api("GET", f"{NAMESPACES}/{namespace}/{path}") for path in PATHS]
    return [content if status == 200 else None for status, content in responses]


@pytest.mark.parametrize("namespace", ["default", "kube-system", "kube-public", "kube-node-lease", "new"])
async def test_namespace_has_service_account_and_root_certificate(api: InProcessApi, namespace: str):
    if namespace == "new":
        api.create(NAMESPACES, {"metadata": {"name": "new"}})
    account, config_map = objects(api, namespace)
    assert account is not None
    assert config_map is not None
    for obj in (account, config_map):
        assert all(obj["metadata"].pop(name) for name in ("uid", "creationTimestamp", "resourceVersion"))
    assert account == {
        "kind": "ServiceAccount",
        "apiVersion": "v1",
        "metadata": {"name": "default", "namespace": namespace},
    }
    [entry] = config_map["metadata"].pop("managedFields")
    assert (entry["manager"], entry["operation"]) == ("kube-controller-manager", "Update")
    assert entry["fieldsV1"] == {
        "f:data": {".": {}, "f:ca.crt": {}},
        "f:metadata": {"f:annotations": {".": {}, "f:kubernetes.io/description": {}}},
    }
    description = config_map["metadata"].pop("annotations")["kubernetes.io/description"]
    assert description.startswith("Contains a CA bundle that can be used to verify the kube-apiserver")
    assert config_map == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "kube-root-ca.crt", "namespace": namespace},
        "data": {"ca.crt": "certificate"},
    }


async def test_deleted_objects_are_created_again(api: InProcessApi):
    before = objects(api, "default")
    for path in PATHS:
        api.succeed("DELETE", f"{NAMESPACES}/default/{path}")
    after = objects(api, "default")
    assert None not in after
    uids = [obj["metadata"]["uid"] for obj in (*before, *after) if obj is not None]
    assert len(set(uids)) == 4


@pytest.mark.parametrize(
    "patch",
    [
        {"data": {"ca.crt": "other"}},
        {"data": {"more": "x"}},
        {"data": None},
        {"metadata": {"annotations": None, "labels": {"own": "x"}}},
    ],
    ids=["certificate", "another key", "no data", "no description"],
)
async def test_changed_config_map_is_restored(api: InProcessApi, patch: JSON):
    path = f"{NAMESPACES}/default/{PATHS[1]}"
    before = api.succeed("GET", path)
    changed = api.succeed("PATCH", path, patch, "application/merge-patch+json")
    after = api.succeed("GET", path)
    assert after["data"] == {"ca.crt": "certificate"}
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert after["metadata"].get("labels") == patch.get("metadata", {}).get("labels")
    assert int(after["metadata"]["resourceVersion"]) == int(changed["metadata"]["resourceVersion"]) + 1
    owners = {entry["manager"] for entry in after["metadata"]["managedFields"] if "f:data" in entry["fieldsV1"]}
    assert owners == {"kube-controller-manager"}


@pytest.mark.parametrize(
    ("patch", "manager"),
    [
        pytest.param({"data": {"ca.crt": "other"}}, "kube-controller-manager", id="of a controller manager"),
        pytest.param({"immutable": True, "data": {"ca.crt": "other"}}, "kubectl", id="immutable"),
    ],
)
async def test_config_map_is_left(api: InProcessApi, patch: JSON, manager: str):
    path = f"{NAMESPACES}/default/{PATHS[1]}"
    api.succeed("PATCH", f"{path}?fieldManager={manager}", patch, "application/merge-patch+json")
    assert api.succeed("GET", path)["data"] == {"ca.crt": "other"}


async def test_nothing_is_created_in_terminating_namespace(api: InProcessApi):
    api.create(NAMESPACES, {"metadata": {"name": "old"}})
    api.succeed("DELETE", f"{NAMESPACES}/old")
    for path in PATHS:
        api.succeed("DELETE", f"{NAMESPACES}/old/{path}")
    assert objects(api, "old") == [None, None]


async def test_namespaces_of_older_data_directory_are_completed(tmp_path: Path):
    folder = tmp_path / "data"
    directory = DataDirectory(folder)
    InProcessApi(data_directory=directory).create(NAMESPACES, {"metadata": {"name": "old"}})
    directory.close()
    directory = DataDirectory(folder)
    api = InProcessApi(data_directory=directory, settings=ServingSettings(root_ca=""))
    assert None not in objects(api, "old")
    assert None not in objects(api, "default")
    directory.close()


async def test_server_without_certificate_creates_nothing():
    api = InProcessApi()
    api.create(NAMESPACES, {"metadata": {"name": "new"}})
    assert objects(api, "new") == objects(api, "default") == [None, None]
    defaults = NamespaceDefaults(api.server.store, api.server.clock, api.server._rng, None)
    assert not defaults.pending
