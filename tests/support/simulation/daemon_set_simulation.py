"""Simulation of DaemonSets: a fake API server with delays, nodes that come and go, kubelets as timers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import structs

from kubeloop.controllers.daemonset.daemon_set_controller import DaemonSetController
from kubeloop.devcluster.storage.store import Change
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.retries import RetryPolicy
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from support.apiserver.fake_apiserver import FakeApiServer
from support.simulation.recorded_events import RecordedEvents
from support.simulation.rollout_simulation import SimulationSettings, pod_not_deleted

JSON = dict[str, Any]
INSTANT = SimulationSettings(request=0.0, watch=0.0, start=0.3, stop=0.3)


class DaemonSetSimulation:
    """An API server, the DaemonSet controller, kubelets, and the deletion of pods of deleted nodes.

    final_phase: the phase that a pod, given as JSON, ends with instead of becoming ready; "" if it becomes ready.
    """

    def __init__(
        self,
        seed: int = 1,
        pace: SimulationSettings = INSTANT,
        *,
        gates: FeatureGates = DEFAULT_FEATURE_GATES,
        **context: Any,
    ) -> None:
        """gates: of API server and controller. context: other fields of its ControllerContext."""
        self.pace = pace
        self.server = FakeApiServer(seed=seed, retries=RetryPolicy(tries=1, throttled_tries=0), gates=gates)
        self.server.api.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
        self.clock, self.store = self.server.clock, self.server.store
        self.events = RecordedEvents()
        self.final_phase: Callable[[JSON], str] = lambda pod: ""
        self._context = context
        self._rng = random.Random(seed)
        self._running: asyncio.Task[None] | None = None
        self.store.subscribe(PODS, self._run_pod)
        transport = self.server.transport
        transport.latency_seconds, transport.watch_delay_seconds = pace.request, pace.watch

    # --- controller --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the controller with empty caches."""
        informers = InformerFactory(self.server.client, clock=self.clock, rng=self._rng)
        context = structs.replace(self.server.context, informers=informers, events=self.events, workers=2)
        self.controller = DaemonSetController(structs.replace(context, **self._context))
        for registration in self.controller._registrations:
            registration.resync_seconds = 0.0  # a resync would reconcile keys that the controller has lost

        async def run() -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(informers.run())
                tasks.create_task(self.controller.run())

        self._running = asyncio.get_running_loop().create_task(run())

    async def stop(self) -> None:
        """Stop the controller wherever it is. Raises the error that has ended it, if any."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = None

    # --- objects -----------------------------------------------------------------------------------------------------

    def add_node(self, name: str, *, labels: dict[str, str] | None = None, taints: list[JSON] | None = None) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}}}
        self.store.create(NODES, body | {"spec": {"taints": taints or []}})

    def change_node(self, name: str, *, labels: dict[str, str] | None = None, taints: list[JSON] | None = None) -> None:
        node = self.store.get(NODES, "", name)
        assert node is not None
        metadata = node["metadata"] if labels is None else {**node["metadata"], "labels": labels}
        spec = node["spec"] if taints is None else {**node["spec"], "taints": taints}
        self.store.update(NODES, {**node, "metadata": metadata, "spec": spec})

    def delete_node(self, name: str) -> None:
        """Delete a node, and later its pods, as the pod garbage collector does."""
        self.store.delete(NODES, "", name)
        for pod in self.pods():
            if pod["spec"].get("nodeName") == name:
                self._later(self.pace.stop, self._stop, pod["metadata"])

    def apply(self, body: JSON) -> JSON:
        """Create or update a DaemonSet as a user."""
        name = body["metadata"]["name"]
        if self.store.get(DAEMON_SETS, "ns", name) is None:
            return self.server.api.create(DAEMON_SETS.path("ns"), body)
        return self.server.api.succeed("PATCH", DAEMON_SETS.path("ns", name), {"spec": body["spec"]})

    def pods(self) -> list[JSON]:
        return self.store.list(PODS)

    def pods_by_node(self) -> dict[str, list[str]]:
        """Return the images of the pods that are not being deleted, by the node that they are for."""
        result: dict[str, list[str]] = {}
        for pod in self.pods():
            if pod_not_deleted(pod):
                result.setdefault(node_of(pod), []).append(pod["spec"]["containers"][0]["image"])
        return dict(sorted(result.items()))

    def status(self, name: str = "agent") -> JSON:
        obj = self.store.get(DAEMON_SETS, "ns", name)
        assert obj is not None
        return obj.get("status", {})

    def revisions(self) -> dict[str, int]:
        """Return the numbers of the revisions by name."""
        return {obj["metadata"]["name"]: obj["revision"] for obj in self.store.list(CONTROLLER_REVISIONS)}

    def reasons(self) -> Counter[str]:
        return Counter(event.reason for event in self.events.events)

    # --- kubelets ----------------------------------------------------------------------------------------------------

    def _run_pod(self, change: Change) -> None:
        metadata = change.now.object["metadata"]
        if change.before is None:
            self._later(self.pace.start / 3, self._bind, metadata)
        elif not pod_not_deleted(change.now.object) and pod_not_deleted(change.before.object):
            self._later(self.pace.stop, self._stop, metadata)

    def _later(self, most_seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        asyncio.get_running_loop().call_later(self._rng.uniform(0, most_seconds), act, *arguments)

    def _pod(self, metadata: JSON) -> JSON | None:
        pod = self.store.get(PODS, "ns", metadata["name"])
        return pod if pod is not None and pod["metadata"]["uid"] == metadata["uid"] else None

    def _bind(self, metadata: JSON) -> None:
        pod = self._pod(metadata)
        if pod is not None and self.store.get(NODES, "", node_of(pod)) is not None:
            spec = {**pod["spec"], "nodeName": node_of(pod)}
            self.store.update(PODS, {**pod, "spec": spec})
            self._later(self.pace.start / 3, self._start, metadata)

    def _start(self, metadata: JSON) -> None:
        pod = self._pod(metadata)
        if pod is not None and pod_not_deleted(pod):
            phase = self.final_phase(pod)
            condition = {"type": "Ready", "status": str(not phase), "lastTransitionTime": rfc3339(self.clock.now())}
            status = {"phase": phase or "Running", "conditions": [condition]}
            self.store.update(PODS, {**pod, "status": status})

    def _stop(self, metadata: JSON) -> None:
        if self._pod(metadata) is not None:
            self.store.delete(PODS, "ns", metadata["name"])


def node_of(pod: JSON) -> str:
    """Return the node that a pod of a DaemonSet runs on or was created for; "" if there is none."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    try:
        required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
    except KeyError:
        return ""
