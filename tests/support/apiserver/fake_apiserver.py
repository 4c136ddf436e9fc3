"""The fake API server of tests: the development API server in memory, for components that use a client.

Nothing is faked but the network: requests pass a `FaultyTransport`. The clock is virtual if the event loop is.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.status_delay import STATUS_DELAY_SECONDS
from kubeloop.devcluster.api import request_info
from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.api.served_resources import api_gates
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.retries import RetryPolicy
from kubeloop.kube.clock import Clock
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, REPLICA_SETS, Resource
from kubeloop.testing.virtual_time import VirtualClock
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from support.apiserver.api_requests import InProcessApi, decoded, request
from support.apiserver.faulty_transport import FaultyTransport
from support.simulation.metric_values import RecordedMetrics
from support.simulation.recorded_events import RecordedEvents
from support.traces.disabled_recorders import DisabledPodRecorder

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


class Write(NamedTuple):
    """A write of the client that the server carried out, and the object before and after it (None: it did not exist).

    A pod that is deleted gracefully still exists afterwards.
    """

    method: str
    resource: Resource[Any]
    subresource: str
    sent: bytes
    before: JSON | None
    after: JSON | None

    @property
    def body(self) -> Any:
        return json.loads(self.sent)


class FakeApiServer:
    """The development API server, and a client of it whose requests pass a `FaultyTransport`.

    client, informers, context, metrics: those of the components under test.
    transport: injects latency and faults into their requests and watches.
    on_write: called with each write of `client` that succeeded, before the client gets the response.
    """

    def __init__(
        self,
        *,
        seed: int = 1,
        clock: Clock | None = None,
        retries: RetryPolicy | None = None,
        gates: FeatureGates = DEFAULT_FEATURE_GATES,
        serves_metrics: bool = False,
    ) -> None:
        """retries: those of the client. gates: of API server and components. serves_metrics: serve the metrics API."""
        self._serves_metrics = serves_metrics
        self._gates = gates
        self.clock = clock or VirtualClock()
        self._seed = seed
        self.reset()
        self.transport = FaultyTransport(self._handle, rng=random.Random(seed + 2))
        self.client = ApiClient(
            self.transport, clock=self.clock, rng=random.Random(seed), retries=retries, trace_requests=True
        )
        self.informers = InformerFactory(self.client, clock=self.clock, rng=random.Random(seed + 1))
        self.metrics = RecordedMetrics()
        traces = ReconcileRecorder(clock=self.clock, rng=random.Random(seed + 3))
        self.context = ControllerContext(
            client=self.client,
            informers=self.informers,
            clock=self.clock,
            traces=traces,
            pod_traces=DisabledPodRecorder(),
            events=RecordedEvents(),
            metrics=self.metrics,
            feature_gates=gates,
            status_delay_seconds=STATUS_DELAY_SECONDS,
        )
        self._writes: list[ApiRequest] = []
        self._deletions: list[asyncio.Future[Response]] = []
        self.on_write: Callable[[Write], None] = lambda write: None

    def reset(self) -> None:
        """Replace the API server by a new one without the objects of the former."""
        self.api = InProcessApi(
            clock=self.clock,
            rng=random.Random(self._seed),
            settings=ServingSettings(feature_gates=self._gates, serves_metrics=self._serves_metrics),
        )
        self.store = self.api.server.store
        self._first_revision = self.store.revision

    def define_widgets(self) -> None:
        """Create the CustomResourceDefinition of WIDGETS."""
        self.api.create(_CRDS, _widget_definition())

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

    def delete(
        self, resource: Resource[Any], name: str, policy: str = "Background", namespace: str = "ns", **options: Any
    ) -> None:
        """Delete an object as a user does. policy: the propagation policy.

        A pod that is watched is removed within the next milliseconds: watchers first see that it is marked.
        """
        path = resource.path(namespace=namespace if resource.namespaced else "", name=name)
        response = self.api.server.respond(request("DELETE", path, {"propagationPolicy": policy, **options}))
        if isinstance(response, Response):
            assert response.status in (200, 202), decoded(response)
        else:
            self._deletions.append(asyncio.ensure_future(response()))

    def objects(self, resource: Resource[Any]) -> list[JSON]:
        """Return all objects but those that every new cluster has, unless these have changed."""
        return [
            obj for obj in self.store.list(resource) if int(obj["metadata"]["resourceVersion"]) > self._first_revision
        ]

    def names(self, resource: Resource[Any]) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.objects(resource)]

    @property
    def requests(self) -> list[tuple[str, str, Any]]:
        """The writes of `client` that reached the server, as (method, path, body)."""
        return [(write.method, write.path, json.loads(write.body or b"{}")) for write in self._writes]

    def written(self, method: str) -> list[str]:
        """Return the paths of the client's writes with `method` that reached the server."""
        return [write.path for write in self._writes if write.method == method]

    async def _handle(self, request: ApiRequest) -> Response:
        if request.method == "GET":
            return await self.api.server.handle(request)
        self._writes.append(request)
        before = self._object(request)
        response = await self.api.server.handle(request)
        if response.status < 400 and request.route is not None:
            created = request.method == "POST" and not request.route.name
            after = decoded(response) if created else self._object(request)
            info = request.route
            self.on_write(Write(request.method, info.served.resource, info.subresource, request.body, before, after))
        return response

    def _object(self, request: ApiRequest) -> JSON | None:
        """Return the object that the path names."""
        info = request_info.route(request.path, api_gates(self._gates))
        if info is None or not info.name:
            return None
        return self.store.get(info.served.resource, info.namespace, info.name)


def _widget_definition() -> JSON:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": WIDGETS.plural, "kind": WIDGETS.kind}
    return {
        "metadata": {"name": f"{WIDGETS.plural}.{WIDGETS.group}"},
        "spec": {"group": WIDGETS.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
