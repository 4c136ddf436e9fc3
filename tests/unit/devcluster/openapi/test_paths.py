"""Paths of the API with their operations."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.openapi.paths import Paths, group_name, operation_tag
from kubeloop.devcluster.openapi.schemas import Schemas
from kubeloop.kube.objects.resources import DEPLOYMENTS, NODES


@pytest.mark.parametrize(
    ("group", "name", "tag"),
    [
        ("", "Core", "core_v1"), ("apps", "Apps", "apps_v1"),
        ("rbac.authorization.k8s.io", "RbacAuthorization", "rbacAuthorization_v1"),
    ],
)  # fmt: skip
def test_name_and_tag_of_a_group(group: str, name: str, tag: str):
    assert (group_name(group), operation_tag(group, "v1")) == (name, tag)


DEPLOYMENT_ROOT = "/apis/apps/v1/namespaces/{namespace}/deployments"


@pytest.mark.parametrize(
    ("path", "operations"),
    [
        (
            DEPLOYMENT_ROOT,
            {
                "get": "listAppsV1NamespacedDeployment",
                "post": "createAppsV1NamespacedDeployment",
                "delete": "deleteAppsV1CollectionNamespacedDeployment",
            },
        ),
        ("/apis/apps/v1/deployments", {"get": "listAppsV1DeploymentForAllNamespaces"}),
        (
            f"{DEPLOYMENT_ROOT}/{{name}}/scale",
            {
                "get": "readAppsV1NamespacedDeploymentScale",
                "put": "replaceAppsV1NamespacedDeploymentScale",
                "patch": "patchAppsV1NamespacedDeploymentScale",
            },
        ),
        ("/apis/apps/v1/watch/deployments", {"get": "watchAppsV1DeploymentListForAllNamespaces"}),
    ],
)
@pytest.mark.parametrize("v3", [True, False], ids=["v3", "v2"])
def test_operations_of_a_path(v3: bool, path: str, operations: dict[str, str]):
    paths = Paths(Schemas(v3=v3), v3=v3)
    paths.add(get_served_resource(DEPLOYMENTS))
    item = paths.paths[path]
    assert {method: value["operationId"] for method, value in item.items() if method != "parameters"} == operations


def test_paths_of_a_cluster_scoped_resource_have_no_namespace():
    paths = Paths(Schemas(v3=True), v3=True)
    paths.add(get_served_resource(NODES))
    assert not any("{namespace}" in path for path in paths.paths)
    assert "/api/v1/nodes/{name}/proxy/{path}" in paths.paths
    assert set(paths.paths["/api/v1/nodes/{name}/proxy"]) - {"parameters"} == {
        "get", "put", "post", "delete", "options", "head", "patch",
    }  # fmt: skip
