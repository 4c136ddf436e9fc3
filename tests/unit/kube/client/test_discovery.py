"""Discovery of resources, aggregated and group by group."""

from __future__ import annotations

import json

import pytest

from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.client.transport import HttpResponse

AGGREGATED = {
    "/api": {"kind": "APIGroupDiscoveryList", "items": []},
    "/apis": {
        "kind": "APIGroupDiscoveryList",
        "items": [
            {
                "metadata": {"name": "apps"},
                "versions": [
                    {
                        "version": "v1",
                        "resources": [
                            {"resource": "reviews", "verbs": ["create"]},
                            {
                                "resource": "deployments",
                                "responseKind": {"kind": "Deployment"},
                                "scope": "Namespaced",
                                "verbs": ["list"],
                                "subresources": [{"subresource": "scale"}],
                            },
                        ],
                    }
                ],
            }
        ],
    },
}
BY_GROUP = {
    "/api": {"kind": "APIVersions", "versions": []},
    "/apis": {"groups": [{"name": "apps", "versions": [{"version": "v1", "groupVersion": "apps/v1"}]}]},
    "/apis/apps/v1": {
        "resources": [
            {"name": "deployments/scale", "kind": "Scale", "namespaced": True, "verbs": ["get"]},
            {"name": "deployments", "kind": "Deployment", "namespaced": True, "verbs": ["list"]},
        ]
    },
}


class DocumentClient:
    def __init__(self, documents):
        self.documents = documents

    async def raw(self, method, target, headers=None):
        return HttpResponse(200, json.dumps(self.documents[target]).encode())


@pytest.mark.parametrize("documents", [AGGREGATED, BY_GROUP], ids=["aggregated", "by group"])
async def test_resources_are_discovered_with_verbs_and_subresources(documents):
    resources = await ResourceMap.discover(DocumentClient(documents))
    deployments = resources.find("apps/v1", "Deployment")
    assert (deployments.plural, deployments.namespaced, deployments.subresources) == ("deployments", True, ("scale",))
    assert resources.verbs(deployments) == {"list"}
    assert resources.find("apps/v1", "Scale") is None


async def test_suggestion_names_served_version_or_similar_kind():
    resources = await ResourceMap.discover(DocumentClient(AGGREGATED))
    assert resources.suggestion("Deployment") == "Deployment is served as apps/v1"
    assert resources.suggestion("Deploment") == "did you mean Deployment?"
    assert resources.suggestion("Widget") == ""
