"""OwnerReferencesPermissionEnforcement: permissions for owner references."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.plugin_settings import WITHOUT_ACCOUNTS, PluginSettings
from kubeloop.devcluster.server.apiserver import ServingSettings
from support.apiserver.api_requests import InProcessApi
from support.objects.role_bindings import CLUSTER_BINDINGS, CLUSTER_ROLES, binding, role

JSON = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"
OWNER: JSON = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "o", "uid": "u"}
BLOCKING = {**OWNER, "blockOwnerDeletion": True}


@pytest.fixture
async def api() -> InProcessApi:
    plugins = PluginSettings(WITHOUT_ACCOUNTS | {"OwnerReferencesPermissionEnforcement"})
    api = InProcessApi(settings=ServingSettings(admission=plugins))
    write = {"verbs": ["create", "update"], "apiGroups": [""], "resources": ["configmaps"]}
    delete = {"verbs": ["delete"], "apiGroups": [""], "resources": ["configmaps"]}
    finalize = {"verbs": ["update"], "apiGroups": ["apps"], "resources": ["deployments/finalizers"]}
    for user, rules in {"writer": [write], "deleter": [write, delete], "owner": [write, delete, finalize]}.items():
        api.create(CLUSTER_ROLES, role(user, *rules))
        api.create(CLUSTER_BINDINGS, binding(user, user, user))
    return api


def config_map(*owners: JSON, name: str = "a") -> JSON:
    return {"metadata": {"name": name, "ownerReferences": [*owners]}}


@pytest.mark.parametrize(
    ("user", "owner", "status"),
    [("writer", OWNER, 201), ("writer", BLOCKING, 403), ("deleter", BLOCKING, 403), ("owner", BLOCKING, 201)],
)
async def test_blocking_owner_needs_update_of_its_finalizers(api: InProcessApi, user: str, owner: JSON, status: int):
    response = api("POST", MAPS, config_map(owner), impersonate_user=user)
    assert response[0] == status
    if status == 403:
        message = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"
        assert message in response[1]["message"]


@pytest.mark.parametrize(("user", "status"), [("writer", 403), ("deleter", 200)])
async def test_changed_owners_need_deletion_of_the_object(api: InProcessApi, user: str, status: int):
    api.create(MAPS, config_map())
    assert api("PUT", f"{MAPS}/a", {**config_map(), "data": {"a": "b"}}, impersonate_user=user)[0] == 200
    response = api("PUT", f"{MAPS}/a", config_map(OWNER), impersonate_user=user)
    assert response[0] == status
    if status == 403:
        assert "cannot set an ownerRef on a resource you can't delete: , <nil>" in response[1]["message"]


async def test_blocking_owner_of_an_unknown_kind_is_refused(api: InProcessApi):
    owner = {**BLOCKING, "apiVersion": "x.example.com/v1"}
    status, content = api("POST", MAPS, config_map(owner), impersonate_user="owner")
    assert status == 403
    assert content["message"].endswith('no matches for kind "Deployment" in version "x.example.com/v1"')


async def test_owner_that_blocked_before_needs_no_permission(api: InProcessApi):
    api.create(MAPS, config_map(BLOCKING))
    second = {**OWNER, "uid": "v"}
    assert api("PUT", f"{MAPS}/a", config_map(BLOCKING, second), impersonate_user="deleter")[0] == 200
