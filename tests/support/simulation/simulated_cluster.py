"""Simulated nodes on a store without an API server, in virtual time; tests write the objects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from msgspec import structs

from kubeloop.controllers.nodelifecycle.node_lifecycle_controller import NodeLifecycleController
from kubeloop.controllers.podgc.pod_garbage_collector import PodGarbageCollector
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.tainteviction.taint_eviction_controller import TaintEvictionController
from kubeloop.devcluster.kubelet.nodes.simulated_nodes import SimulatedNodes
from kubeloop.devcluster.kubelet.stages.files import Stage
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.events.event_recorder import EventBroadcaster
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.resources import EVENTS, NODES, PODS, Resource
from kubeloop.process.control_plane.controller_table import default_options
from kubeloop.testing.virtual_time import VirtualClock
from support.apiserver.fake_apiserver import FakeApiServer

JSON = dict[str, Any]


COMPONENTS: Mapping[Any, str] = {
    NodeLifecycleController: "node-controller",
    PodGarbageCollector: "pod-garbage-collector-controller",
    TaintEvictionController: "taint-eviction-controller",
}
"""Controllers of nodes and their pods, with the names of their event recorders."""


class SimulatedCluster:
    """A store with simulated nodes, two by default, whose pods start after a second. settings: fields of NodeSettings.

    controllers: functions that return a controller; with any of them, the store is that of a FakeApiServer. options:
    their options that have another value than the default. server: the FakeApiServer.
    Pods are in namespace "default". Annotations are passed without their prefix "kubeloop.dev/".
    """

    def __init__(
        self,
        *,
        stages: Sequence[Stage] = (),
        data_directory: DataDirectory | None = None,
        gates: FeatureGates = DEFAULT_FEATURE_GATES,
        controllers: Sequence[Callable[[ControllerContext], Any]] = (),
        options: Mapping[str, Any] | None = None,
        seed: int = 1,
        **settings: Any,
    ) -> None:
        self.clock = VirtualClock()
        self._runs: list[Callable[[], Coroutine[Any, Any, None]]] = []
        if controllers:
            server = self.server = FakeApiServer(clock=self.clock, gates=gates)
            self.store = server.store
            events = EventBroadcaster(server.client, clock=self.clock, rng=random.Random(2))
            self._runs = [server.informers.run, events.run]
            for new_controller in controllers:
                component = events.for_component(COMPONENTS[new_controller])
                context = structs.replace(server.context, events=component, options=default_options() | (options or {}))
                self._runs.append(new_controller(context).run)
        else:
            self.store = ObjectStore(seconds=asyncio.get_running_loop().time, data_directory=data_directory)
        node_settings: JSON = {"count": 2, "start_delay_seconds": 1.0, "start_delay_spread_seconds": 0.0, **settings}
        self.nodes = SimulatedNodes(
            self.store,
            NodeSettings(**node_settings),
            clock=self.clock,
            rng=random.Random(seed),
            stages=stages,
            gates=gates,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Run the nodes until the end of the block."""
        tasks = [asyncio.ensure_future(run()) for run in (self.nodes.run, *self._runs)]
        await asyncio.sleep(0)
        try:
            yield self
        finally:
            for task in reversed(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def bind(
        self,
        name: str = "web",
        *,
        node: str = "node-0",
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        finalizers: tuple[str, ...] = (),
        containers: list[JSON] | None = None,
        **spec: Any,
    ) -> JSON:
        """Create a bound pod."""
        metadata: JSON = {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1}
        if annotations:
            metadata["annotations"] = _prefixed(annotations)
        if labels:
            metadata["labels"] = dict(labels)
        if finalizers:
            metadata["finalizers"] = list(finalizers)
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(self.clock.now())}
        pod = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": metadata,
            "spec": {
                "nodeName": node,
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 30,
                "containers": containers or [container("web")],
                **spec,
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort", "conditions": [scheduled]},
        }
        return self.store.create(PODS, pod)

    def pod(self, name: str = "web") -> JSON | None:
        return self.store.get(PODS, "default", name)

    def status(self, name: str = "web") -> JSON:
        pod = self.pod(name)
        assert pod is not None
        status: JSON = pod["status"]
        return status

    def phase(self, name: str = "web") -> str:
        phase: str = self.status(name)["phase"]
        return phase

    def conditions(self, name: str = "web") -> dict[str, tuple[str, str]]:
        """Return status and reason of the conditions by type."""
        conditions = self.status(name)["conditions"]
        return {condition["type"]: (condition["status"], condition.get("reason", "")) for condition in conditions}

    def ready(self, name: str = "web") -> bool:
        return self.conditions(name).get("Ready", ("", ""))[0] == "True"

    def change(self, name: str = "web", *, annotations: Mapping[str, str] | None = None, **parts: Any) -> None:
        """Update the pod. annotations: replaces all; parts: top-level fields to replace."""
        pod = self.pod(name)
        assert pod is not None
        metadata = dict(pod["metadata"])
        if annotations is not None:
            metadata["annotations"] = _prefixed(annotations)
        self.store.update(PODS, {**pod, "metadata": metadata, **parts})

    def delete(self, name: str = "web", *, grace: int = 30) -> None:
        """Set the deletion timestamp and grace period like the API server."""
        self.change_metadata(PODS, name, deletionTimestamp=rfc3339(self.clock.now()), deletionGracePeriodSeconds=grace)

    def change_metadata(self, resource: Resource[Any], name: str, **metadata: Any) -> None:
        obj = self.store.get(resource, "default" if resource.namespaced else "", name)
        assert obj is not None
        self.store.update(resource, {**obj, "metadata": {**obj["metadata"], **metadata}})

    def node(self, name: str = "node-0") -> JSON:
        node = self.store.get(NODES, "", name)
        assert node is not None
        return node

    def change_node(self, name: str, **spec: Any) -> None:
        node = self.node(name)
        self.store.update(NODES, {**node, "spec": {**node["spec"], **spec}})

    def events(self) -> list[tuple[str, str]]:
        """Return reason and message of every event."""
        return [(event["reason"], event["message"]) for event in self.store.list(EVENTS)]


def container(name: str, **fields: Any) -> JSON:
    return {"name": name, "image": "nginx:1.27", **fields}


def _prefixed(annotations: Mapping[str, str]) -> dict[str, str]:
    return {f"kubeloop.dev/{key}": value for key, value in annotations.items()}
