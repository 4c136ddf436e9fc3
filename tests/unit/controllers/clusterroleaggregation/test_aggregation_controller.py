"""The ClusterRole aggregation controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.api.runner import ControllerRunner
from kubeloop.controllers.clusterroleaggregation.aggregation_controller import ClusterRoleAggregationController
from kubeloop.kube.objects.resources import CLUSTER_ROLES

pytestmark = pytest.mark.virtual_time
CRONTABS = {"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["crontabs"]}


@pytest.fixture
async def apiserver(fake_apiserver, start):
    await start(fake_apiserver.informers, ControllerRunner(fake_apiserver.context, ClusterRoleAggregationController))
    await asyncio.sleep(2)
    return fake_apiserver


def rules(api: Any, name: str) -> Any:
    return api.store.get(CLUSTER_ROLES, "", name)["rules"]


def readers() -> dict[str, Any]:
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    return {"metadata": {"name": "crontab-readers", "labels": labels}, "rules": [CRONTABS]}


async def test_bootstrap_roles_get_the_rules_of_the_roles_below(apiserver):
    aggregated = {name: rules(apiserver, name) for name in ("view", "edit", "admin")}
    below = {name: rules(apiserver, f"system:aggregate-to-{name}") for name in aggregated}
    assert aggregated["view"] == below["view"]
    assert [len(aggregated[name]) > len(below[name]) for name in ("edit", "admin")] == [True, True]
    assert all(rule in aggregated["admin"] for name in below for rule in below[name])
    manager = apiserver.store.get(CLUSTER_ROLES, "", "view")["metadata"]["managedFields"][0]
    assert (manager["manager"], manager["operation"]) == ("clusterrole-aggregation-controller", "Apply")


async def test_role_of_a_user_is_added_to_view_edit_and_admin(apiserver):
    apiserver.api.create(CLUSTER_ROLES.path(), readers())
    await asyncio.sleep(1)
    assert all(CRONTABS in rules(apiserver, name) for name in ("view", "edit", "admin"))
    await apiserver.client.delete(CLUSTER_ROLES, "crontab-readers")
    await asyncio.sleep(1)
    assert not any(CRONTABS in rules(apiserver, name) for name in ("view", "edit", "admin"))


async def test_rules_that_a_user_writes_to_an_aggregated_role_are_replaced(apiserver):
    before = rules(apiserver, "view")
    body = {"rules": [CRONTABS]}
    apiserver.api.succeed("PATCH", CLUSTER_ROLES.path("", "view"), body, content_type="application/merge-patch+json")
    assert rules(apiserver, "view") == [CRONTABS]
    await asyncio.sleep(1)
    assert rules(apiserver, "view") == before


async def test_settled_roles_are_not_written_again(apiserver):
    before = len(apiserver.written("PATCH"))
    apiserver.api.create(CLUSTER_ROLES.path(), {"metadata": {"name": "other"}, "rules": [CRONTABS]})
    await asyncio.sleep(60)
    assert len(apiserver.written("PATCH")) == before
