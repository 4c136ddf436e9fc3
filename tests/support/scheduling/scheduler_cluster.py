"""SchedulerCluster: a fake API server for a scheduler, with short forms for nodes and pods."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.events.event_recorder import ComponentEvents
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.kube.objects.resources import NODES, POD_GROUPS, PODS, Resource
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.legacy_policy.plugins import ALL_PLUGINS
from kubeloop.scheduler.scheduler import Scheduler
from support.apiserver.fake_apiserver import FakeApiServer, Write
from support.apiserver.faulty_transport import SentRequest
from support.scheduling.plugin_cluster import pod_group_spec
from support.traces.disabled_recorders import DisabledPodRecorder

JSON = dict[str, Any]


def new_scheduler(informers: Any, config: SchedulerConfiguration, clock: Clock, **context: Any) -> Scheduler:
    """Return a scheduler of the in-tree plugins.

    context: other fields of SchedulerContext than the defaults here; client and event sink are `informers`.
    """
    fields: JSON = {"client": informers, "clock": clock, "rng": random.Random(1), "recorder_for": lambda _: informers}
    fields["traces"] = DisabledPodRecorder()
    return Scheduler(SchedulerContext(**(fields | context)), informers, config, ALL_PLUGINS)


class SchedulerCluster:
    """A fake API server and event sink. Objects are stored without admission and validation.

    bindings: those that took effect, as (pod key, node). patches: status patches, as (pod key, status). events: as (pod
    key, reason, message). event_sources, event_actions: component and action of each event. before_bind(pod key, node):
    called before the server handles a binding; may return an awaitable, and raise TransportError or StatusError.
    lost_responses: number of bindings that take effect although the client gets no response.
    """

    def __init__(self, clock: Clock, gates: FeatureGates = DEFAULT_FEATURE_GATES) -> None:
        """gates: of the API server."""
        self.clock = clock
        self.server = FakeApiServer(clock=clock, gates=gates)
        self.server.on_write = self._note_write
        self.server.transport.before_request = self._before_request
        self.server.transport.lose_response = self._lose_response
        self.events: list[tuple[str, str, str]] = []
        self.event_sources: list[str] = []
        self.event_actions: list[str] = []
        self.bindings: list[tuple[str, str]] = []
        self.patches: list[tuple[str, JSON]] = []
        self.before_bind: Callable[[str, str], Awaitable[None] | None] | None = None
        self.lost_responses = 0
        self._uids = 0

    def record(
        self, component: str, about: Any, type_: str, reason: str, message: str, action: str, related: Any = None
    ) -> None:
        self.events.append((about.key, reason, message))
        self.event_sources.append(component)
        self.event_actions.append(action)

    def recorder_for(self, component: str) -> ComponentEvents:
        recorder: Any = self
        return ComponentEvents(recorder, component)

    def scheduler(
        self, config: SchedulerConfiguration, informers: InformerFactory | None = None, **context: Any
    ) -> Scheduler:
        """Return a scheduler with `informers`, or with those of the server. context: see new_scheduler."""
        fields = {"client": self.server.client, "recorder_for": self.recorder_for, **context}
        return new_scheduler(informers or self.server.informers, config, self.clock, **fields)

    # --- objects -----------------------------------------------------------------------------------------------------

    def put(self, resource: Resource[Any], obj: JSON) -> JSON:
        """Create or replace an object. Returns it as stored."""
        metadata = {**obj["metadata"]}
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        before = self.server.store.get(resource, metadata.get("namespace", ""), metadata["name"])
        if before is None:
            self._uids += 1
            metadata.setdefault("uid", f"uid-{metadata['name']}-{self._uids}")
            metadata.setdefault("creationTimestamp", rfc3339(self.clock.now()))
        else:
            metadata = {**before["metadata"], **metadata}
            metadata.pop("resourceVersion")
        complete = {"kind": resource.kind, "apiVersion": resource.api_version, **obj, "metadata": metadata}
        return (self.server.store.create if before is None else self.server.store.update)(resource, complete)

    def node(self, name: str, *, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **fields: Any) -> Node:
        """Create or replace a node. fields: `labels`, `annotations`, `status`, and fields of its spec."""
        metadata = {
            "name": name,
            "labels": {"kubernetes.io/hostname": name} | fields.pop("labels", {}),
            "annotations": fields.pop("annotations", {}),
        }
        allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
        status = {"allocatable": allocatable, **fields.pop("status", {})}
        return convert(Node, self.put(NODES, {"metadata": metadata, "spec": fields, "status": status}))

    def pod(self, name: str, *, cpu: str = "100m", namespace: str = "default", **spec: Any) -> Pod:
        """Create a pod. spec: fields of its spec, and `metadata`."""
        metadata = {"name": name, "namespace": namespace, **spec.pop("metadata", {})}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}} if cpu else {}}
        # the kubelet of the node would remove a pod after its grace period
        defaults = {
            "schedulerName": "default-scheduler", "containers": [container], "terminationGracePeriodSeconds": 0
        }  # fmt: skip
        return convert(
            Pod, self.put(PODS, {"metadata": metadata, "spec": {**defaults, **spec}, "status": {"phase": "Pending"}})
        )

    def pod_group(self, name: str, min_count: int = 0, topology_key: str = "", **spec: Any) -> PodGroup:
        """Create a PodGroup. spec: fields of its spec in addition to those of pod_group_spec."""
        spec |= pod_group_spec(min_count, topology_key)
        return convert(PodGroup, self.put(POD_GROUPS, {"metadata": {"name": name}, "spec": spec}))

    def change_pod(self, key: str, *, status: JSON | None = None, **spec: Any) -> None:
        """Replace the given fields of the pod's spec, and its status."""
        pod = self.stored_pod(key)
        assert pod is not None
        self.put(PODS, {**pod, "spec": {**pod["spec"], **spec}, "status": status or pod["status"]})

    def delete_pod(self, key: str) -> None:
        self.server.store.delete(PODS, *key.split("/"))

    def stored_pod(self, key: str) -> JSON | None:
        return self.server.store.get(PODS, *key.split("/"))

    def nodes(self) -> list[Node]:
        return [convert(Node, node) for node in self.server.store.list(NODES)]

    def pods(self) -> list[Pod]:
        return [convert(Pod, pod) for pod in self.server.store.list(PODS)]

    def node_of(self, key: str) -> str:
        """Return the node of a pod; "" if it is not bound or does not exist."""
        pod = self.stored_pod(key)
        return "" if pod is None else pod["spec"].get("nodeName", "")

    # --- requests ----------------------------------------------------------------------------------------------------

    @property
    def fetched(self) -> list[str]:
        """The last segment of the path of each GET: the name of an object, or the resource of a list."""
        return [request.path.rsplit("/", 1)[1] for request in self.server.transport.sent if request.method == "GET"]

    def _note_write(self, write: Write) -> None:
        metadata = (write.after or write.before or {}).get("metadata", {})
        key = f"{metadata.get('namespace')}/{metadata.get('name')}"
        if write.subresource == "binding":
            self.bindings.append((key, write.body["target"]["name"]))
        elif write.subresource == "status":
            self.patches.append((key, write.body["status"]))

    async def _before_request(self, request: SentRequest) -> None:
        if self.before_bind is None or not request.path.endswith("/binding"):
            return
        *_, namespace, _, name, _ = request.path.split("/")
        waiting = self.before_bind(f"{namespace}/{name}", msgspec.json.decode(request.body)["target"]["name"])
        if waiting is not None:
            await waiting

    def _lose_response(self, method: str, path: str) -> bool:
        lost = self.lost_responses > 0 and path.endswith("/binding")
        self.lost_responses -= lost
        return lost
