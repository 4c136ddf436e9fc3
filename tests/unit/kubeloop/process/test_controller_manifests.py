"""Manifests of custom controllers: roles of what they declare, and the Deployment."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from kubeloop.controllers.api import AccessRule, ReconcileOptions
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse
from kubeloop.kube.objects.resources import NODES, SECRETS
from kubeloop.manager import ElectionSettings, Manager
from kubeloop.process.controller_manifests import Installation, controller_manifests
from kubeloop.testing import memory_cluster, virtual_time
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.virtual_time import VirtualClock
from support.controllers.sites import CRD, Sites, site

INSTALLATION = Installation("sites", "ops", "registry/sites:1", "my_operator:Sites", replicas=2)


class LimitedSites(Sites):
    options = ReconcileOptions(namespaces=("a", "b"))
    permissions = (AccessRule(SECRETS, "get"), AccessRule(NODES, "list"))


def named(objects: list[dict[str, Any]]) -> list[str]:
    return [
        f"{obj['kind']} {obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
        for obj in objects
        if not obj["kind"].endswith("Binding")
    ]


def test_controller_of_all_namespaces_gets_a_cluster_role():
    objects = controller_manifests([Sites], INSTALLATION)
    assert named(objects) == [
        "ServiceAccount ops/sites",
        "Role ops/sites-election",
        "ClusterRole /sites",
        "Deployment ops/sites",
    ]
    deployment = objects[-1]["spec"]
    [container] = deployment["template"]["spec"]["containers"]
    assert deployment["replicas"] == 2
    assert container["image"] == "registry/sites:1"
    assert "--controllers=my_operator:Sites" in container["args"]


def test_controller_of_two_namespaces_gets_roles_there():
    objects = controller_manifests([LimitedSites], INSTALLATION)
    assert named(objects)[2:5] == ["Role a/sites", "Role b/sites", "ClusterRole /sites-cluster"]
    cluster = [obj for obj in objects if obj["kind"] == "ClusterRole"]
    assert [rule["resources"] for rule in cluster[0]["rules"]] == [["nodes"]]
    for role in objects:
        if role["kind"] == "Role" and role["metadata"]["name"] == "sites":
            resources = [resource for rule in role["rules"] for resource in rule["resources"]]
            assert {"secrets", "sites/status", "events"} <= {*resources}


def test_bindings_refer_to_the_service_account():
    for obj in controller_manifests([LimitedSites], INSTALLATION):
        if obj["kind"].endswith("Binding"):
            assert obj["subjects"] == [{"kind": "ServiceAccount", "name": "sites", "namespace": "ops"}]
            assert obj["roleRef"]["kind"] == obj["kind"].removesuffix("Binding")


class ServiceAccountTransport(MemoryTransport):
    """Sends requests as the ServiceAccount of the manifests. denied: paths of requests with status 403."""

    def __init__(self, api: ApiServer) -> None:
        super().__init__(api.handle)
        self.denied: list[str] = []

    async def send(self, request: HttpRequest) -> HttpResponse:
        response = await super().send(self._impersonated(request))
        if response.status == 403:
            self.denied.append(f"{request.method} {request.target}")
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        return super().stream(self._impersonated(request))

    @staticmethod
    def _impersonated(request: HttpRequest) -> HttpRequest:
        headers = {**request.headers, "impersonate-user": "system:serviceaccount:ops:sites"}
        return msgspec.structs.replace(request, headers=headers)


def test_printed_rules_suffice_for_the_controller():
    async def scenario() -> list[str]:
        async with memory_cluster(clock=VirtualClock(), nodes=1) as cluster:
            await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}})
            await cluster.apply(CRD, *controller_manifests([Sites], INSTALLATION)[:-1])
            transport = ServiceAccountTransport(cluster.api)
            election = ElectionSettings("ops", "sites", "replica-1")
            async with Manager([Sites], transport=transport, election=election, clock=VirtualClock()):
                await cluster.apply(site())
                await cluster.wait_for("site/blog", "Ready")
                await cluster.delete("site/blog")
                await cluster.wait_for("site/blog", "delete")
            return transport.denied

    assert virtual_time.run(scenario()) == []
