"""A development API server in memory for controllers under test, with the record of what they write."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import Request, Response, json_response
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.objects.resources import DEPLOYMENTS, NAMESPACES, PODS, REPLICA_SETS, Resource
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.virtual_time import VirtualClock
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from support.api_requests import InProcessApi

JSON = dict[str, Any]
WIDGETS: Resource[JSON] = Resource("example.com", "v1", "Widget", "widgets", True, dict)
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POD_SPEC: JSON = {"containers": [{"name": "main", "image": "app:1"}]}
_LABELS = {"app": "web"}
_WORKLOAD_SPEC: JSON = {
    "replicas": 0,
    "selector": {"matchLabels": _LABELS},
    "template": {"metadata": {"labels": _LABELS}, "spec": _POD_SPEC},
}
_SPECS: dict[Resource[Any], JSON] = {PODS: _POD_SPEC, DEPLOYMENTS: _WORKLOAD_SPEC, REPLICA_SETS: _WORKLOAD_SPEC}


class FakeApiServer:
    """The development API server with the namespaces "ns" and "other" and the custom resource `WIDGETS`.

    client, informers, context: those of the controllers under test.
    requests: the writes of `client` that were not rejected, as (method, path, body).
    reject: called with method and path of each request of `client`; returns the error to respond with, or None.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.api = InProcessApi(clock=self.clock)
        self.store = self.api.server.store
        self.client = Client(MemoryTransport(self._handle), clock=self.clock, rng=random.Random(1))
        self.informers = InformerFactory(self.client, clock=self.clock, rng=random.Random(2))
        traces = ReconcileRecorder(clock=self.clock, rng=random.Random(3))
        self.context = ControllerContext(self.client, self.informers, self.clock, traces)
        self.requests: list[tuple[str, str, Any]] = []
        self.reject: Callable[[str, str], errors.StatusError | None] = lambda method, path: None
        self._bootstrapped = {
            entry.object["metadata"]["uid"] for _, table in self.store.tables() for entry in table.list()
        }
        self.api.create(_CRDS, _widget_definition())
        for name in ("ns", "other"):
            self.add(NAMESPACES, name)

    def add(self, resource: Resource[Any], name: str, *owners: JSON, namespace: str = "ns", **metadata: Any) -> JSON:
        """Create a valid object and return it. owners: its owner references."""
        body: JSON = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "ownerReferences": list(owners), **metadata},
        }
        if resource in _SPECS:
            body["spec"] = _SPECS[resource]
        created: JSON = self.api.create(resource.path(namespace=namespace if resource.namespaced else ""), body)
        return created

    def delete(self, resource: Resource[Any], name: str, policy: str = "Background", namespace: str = "ns") -> None:
        """Delete an object as a user does. policy: the propagation policy."""
        path = resource.path(namespace=namespace if resource.namespaced else "", name=name)
        self.api.succeed("DELETE", path, {"propagationPolicy": policy})

    def objects(self, resource: Resource[Any]) -> list[JSON]:
        """Return all objects but those that every new cluster has."""
        return [obj for obj in self.store.list(resource) if obj["metadata"]["uid"] not in self._bootstrapped]

    def names(self, resource: Resource[Any]) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.objects(resource)]

    def written(self, method: str) -> list[str]:
        """Return the paths of the client's writes with `method`."""
        return [path for written_method, path, _ in self.requests if written_method == method]

    async def _handle(self, request: Request) -> Response:
        await asyncio.sleep(0)
        error = self.reject(request.method, request.path)
        if error is not None:
            return json_response(error.code, error.status)
        if request.method != "GET":
            self.requests.append((request.method, request.path, json.loads(request.body) if request.body else {}))
        return await self.api.server.handle(request)


def _widget_definition() -> JSON:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": WIDGETS.plural, "kind": WIDGETS.kind}
    return {
        "metadata": {"name": f"{WIDGETS.plural}.{WIDGETS.group}"},
        "spec": {"group": WIDGETS.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
