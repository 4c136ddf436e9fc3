"""Simulated nodes: the kubelets of a cluster, on one event loop.

Every Node in the store has a simulated kubelet, those of `NodeSettings.count` and those that users create; or, without
`every_node`, those with the annotation (or label) kubeloop.dev/node=simulated or kwok.x-k8s.io/node=fake. The parts
share one timer queue (`simulation`), so there is no task per pod or node:

    Kubelets              pods bound to a node                                          kubelet
    PodStages             instead, or in addition: stages of a file, as in KWOK         stages

Annotations (or labels) of a pod that control its kubelet; times in seconds:
    kubeloop.dev/start-delay-seconds   overrides the settings' start delay
    kubeloop.dev/image-pull-seconds    duration of image pulls before the start
    kubeloop.dev/image-pull-error      error text of failing image pulls, while the annotation exists
    kubeloop.dev/not-ready             "true": running but not ready, while the annotation exists
    kubeloop.dev/run-seconds           main containers exit after this time
    kubeloop.dev/exit-code             their exit code; without run-seconds they exit at once
    kubeloop.dev/crashes               number of exits, after which they keep running
    kubeloop.dev/run-seconds.NAME      of one container, init container or sidecar; also exit-code.NAME, crashes.NAME
    kubeloop.dev/stop-seconds          overrides the settings' stop delay; at most the grace period
    kubeloop.dev/jitter                0.2: each of these times varies by up to 20 %
    kubeloop.dev/stages                "false": stages of a file do not apply to this pod
and of a node:
    kubeloop.dev/fail                  one of node_objects.FAILURE_MODES, while the annotation exists
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.kubelet.kubelet import Kubelets
from kubeloop.devcluster.kubelet.nodes.node_heartbeats import NodeHeartbeats
from kubeloop.devcluster.kubelet.pods.pod_annotations import marker
from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.devcluster.registry.disabled_fields import DisabledFields
from kubeloop.devcluster.simulation import node_objects
from kubeloop.devcluster.simulation.node_addresses import NodeAddresses
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.simulation.simulation import Simulation, guarded
from kubeloop.devcluster.storage.store import Change, ObjectStore, StoredObject
from kubeloop.kube.clock import Clock
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import LEASES, NODES, PODS, Resource
from kubeloop.kube.uids import new_uid

if TYPE_CHECKING:
    from kubeloop.devcluster.kubelet.stages.files import Stage
    from kubeloop.devcluster.kubelet.stages.requests import StageRequests

_BATCH = 50  # changes and timers per turn of the event loop: about 5 ms
_REGISTERED = "registered nodes"  # number in the store: how many of the settings' nodes have been created


class SimulatedNodes:
    """All nodes of a development cluster. Call run() once; register() may be called before it."""

    def __init__(
        self,
        store: ObjectStore,
        settings: NodeSettings | None = None,
        *,
        clock: Clock,
        rng: random.Random,
        stages: Iterable[Stage] = (),
        requests: StageRequests | None = None,
        gates: FeatureGates = DEFAULT_FEATURE_GATES,
    ) -> None:
        """requests: sends requests to the store's server, for stages that apply other objects. gates: the server's."""
        self._store = store
        self._settings = settings or NodeSettings()
        self._simulation = Simulation(store, self._settings, clock=clock, rng=rng)
        self._wake = asyncio.Event()
        self._stages = None
        stages = [stage for stage in stages if stage.is_for_pod_or_node]
        if stages:
            from kubeloop.devcluster.kubelet.stages.pod_stages import PodStages

            self._stages = PodStages(self._simulation, stages, self._wake.set, requests, DisabledFields(gates))
        # whether kubelets report the conditions of nodes; else stages do
        self._kubelets_report = self._stages is None or not self._stages.replaces("Node")
        self._kubelets = Kubelets(self._simulation, self._receive, quiet=self._stages is None)
        self._slices = None
        if self._settings.devices:
            from kubeloop.devcluster.kubelet.nodes.resource_slices import ResourceSlices

            self._slices = ResourceSlices(self._simulation, self._settings.devices)
        self._orphans: dict[str, dict[str, JSON]] = {}  # node that does not exist -> its pods by uid
        self._nodes: dict[str, SimulatedNode] = {}
        self._heartbeats = NodeHeartbeats(self._simulation, self._nodes, reports=self._kubelets_report)
        self._next_index = self._settings.count
        self._addresses = NodeAddresses()
        self._inbox: deque[Change] = deque()

    # --- lifecycle --------------------------------------------------------------------------------

    def register(self) -> None:
        """Create the settings' Nodes that this store has never had; a deleted Node is not created again."""
        before = self._store.get_number(_REGISTERED)
        if self._settings.count <= before:
            return
        for node in self._store.list(NODES):
            self._addresses.take(node)
        for index in range(before, self._settings.count):
            if self._store.get(NODES, "", self._settings.name(index)) is None:
                node = node_objects.node_object(
                    self._settings, index, now=self._simulation.wall(), uid=new_uid(self._simulation.rng)
                )
                self._store.create(NODES, self._completed(node, index) or node)
        self._store.set_number(_REGISTERED, self._settings.count)

    def _completed(self, node: JSON, index: int) -> JSON | None:
        """Call node_objects.completed_node() and reserve the node's addresses."""
        complete = node_objects.completed_node(
            node,
            self._settings,
            index,
            self._addresses,
            now=self._simulation.wall(),
            conditions=self._kubelets_report,
        )
        self._addresses.take(complete or node)
        return complete

    async def run(self) -> None:
        """Run nodes and pods until cancelled."""
        self.register()
        followed: list[Resource[Any]] = [NODES, PODS]
        if self._settings.heartbeats_on_read:
            followed.append(LEASES)
        unsubscribe = [self._store.subscribe(resource, self._receive) for resource in followed]
        try:
            nodes = self._store.list(NODES)
            for node in nodes:
                self._addresses.take(node)
            for node in nodes:
                if self._is_simulated(node):
                    guarded(self._add_node, node)
            for pod in self._store.list(PODS):
                if pod["spec"].get("nodeName") and (self._settings.adopts_at_once or not _is_at_rest(pod)):
                    self._inbox.append(Change("ADDED", StoredObject("", pod, 0), None, 0.0))
            self._heartbeats.start()
            async with asyncio.TaskGroup() as tasks:
                if self._stages is not None:
                    tasks.create_task(self._stages.run(), name="nodes/stages")
                await self._work_forever()
        finally:
            for stop in unsubscribe:
                stop()
            self._kubelets.close()

    async def _work_forever(self) -> None:
        """Handle changes and timers as they come."""
        while True:
            await self._work_through()
            await self._simulation.timers.wait(self._wake)

    async def _work_through(self) -> None:
        """Handle all changes and due timers, in batches."""
        done = 0
        while True:
            if self._inbox:
                guarded(self._apply, self._inbox.popleft())
            else:
                timer = self._simulation.timers.pop(self._simulation.now())
                if timer is None:
                    return
                if timer.act is not None:
                    guarded(timer.act, timer.argument)
            done += 1
            if done % _BATCH == 0:
                await asyncio.sleep(0)

    def _receive(self, change: Change) -> None:
        if self._simulation.quiet:
            return
        obj = change.now.object
        if obj["kind"] == "Pod" and not obj["spec"].get("nodeName"):
            return
        self._inbox.append(change)
        self._wake.set()

    def _apply(self, change: Change) -> None:
        obj = change.now.object
        if obj["kind"] == "Node":
            self._apply_node(change)
            return
        if obj["kind"] == "Lease":
            self._heartbeats.lease_changed(obj["metadata"]["name"])
            return
        if obj["kind"] != "Pod":
            self._kubelets.object_changed(obj)
            return
        uid = obj["metadata"]["uid"]
        if change.type == "DELETED":
            self._kubelets.forget(uid)
            self._orphans.get(obj["spec"]["nodeName"], {}).pop(uid, None)
            if self._stages is not None:
                self._stages.forget(uid)
            return
        # The current pod counts: the simulation's own writes may be newer than this change.
        current = self._simulation.current_pod(obj)
        if current is not None:
            self._apply_pod(current)

    # --- nodes ------------------------------------------------------------------------------------

    def _is_simulated(self, node: JSON) -> bool:
        is_marked = node_objects.is_simulated(node)
        return self._settings.every_node if is_marked is None else is_marked

    def _apply_node(self, change: Change) -> None:
        name = change.now.object["metadata"]["name"]
        current = self._store.get(NODES, "", name)
        simulated = self._nodes.get(name)
        if simulated is not None and (current is None or current["metadata"]["uid"] != simulated.uid):
            self._remove_node(simulated, deleted=True)
            simulated = None
        if current is None:
            return
        if not self._is_simulated(current):
            if simulated is not None:  # has been marked as not simulated
                self._remove_node(simulated, deleted=False)
        elif simulated is None:
            self._add_node(current)
        else:
            self._node_changed(simulated, current)

    def _add_node(self, node: JSON) -> None:
        name = node["metadata"]["name"]
        index = self._index_of(name)
        complete = self._completed(node, index)
        if complete is not None:
            node = self._simulation.update(NODES, complete, quiet=True)
        simulated = self._nodes[name] = SimulatedNode(node, index)
        if self._slices is not None:
            self._slices.publish(node)
        simulated.failing = ""  # so that a failure is reported as a change
        self._node_changed(simulated, node)
        self._heartbeats.renew_lease(simulated)
        for orphan in self._orphans.pop(name, {}).values():
            current = self._simulation.current_pod(orphan)
            if current is not None:
                self._pod_bound(current, simulated)

    def _index_of(self, name: str) -> int:
        prefix, first = self._settings.name_prefix, self._settings.first_number
        number = name.removeprefix(prefix)
        if name.startswith(prefix) and number.isdigit() and 0 <= int(number) - first < self._settings.count:
            return int(number) - first
        self._next_index += 1
        return self._next_index - 1

    def _node_changed(self, simulated: SimulatedNode, node: JSON) -> None:
        was_failing, was_cordoned = simulated.failing, simulated.unschedulable
        node = self._with_allocatable(simulated, node)
        simulated.refresh(node)
        if simulated.failing != was_failing:
            node = self._failure_changed(simulated, node, was_failing)
        if simulated.unschedulable != was_cordoned and not simulated.is_unreachable:
            reason = "NodeNotSchedulable" if simulated.unschedulable else "NodeSchedulable"
            self._node_event(simulated, reason)
        self._heartbeats.node_changed(simulated)
        self._kubelets.node_changed(simulated)
        if self._stages is not None:
            self._stages.node_seen(node, simulated)

    def _with_allocatable(self, simulated: SimulatedNode, node: JSON) -> JSON:
        """Make extended resources allocatable that a client has added to the node's capacity."""
        before = (simulated.object.get("status") or {}).get("capacity") or {}
        is_known = simulated.object is not node and before == (node.get("status") or {}).get("capacity")
        if is_known or simulated.is_unreachable or not self._kubelets_report:
            return node
        changed = node_objects.with_extended_resources(node, before)
        return node if changed is None else self._simulation.update(NODES, changed, quiet=True)

    def _failure_changed(self, simulated: SimulatedNode, node: JSON, before: str) -> JSON:
        """React to a changed failure mode of the node."""
        if simulated.is_unreachable:
            self._heartbeats.stopped(simulated)
            return node
        was_ready = is_true(node, "Ready")
        node = self._simulation.update(
            NODES, node_objects.with_reported_conditions(node, self._simulation.wall()), quiet=True
        )
        simulated.refresh(node)
        if is_true(node, "Ready") != was_ready:
            self._node_event(simulated, "NodeNotReady" if was_ready else "NodeReady")
        if before == "unreachable":
            self._heartbeats.renew_lease(simulated)
        self._kubelets.resume(simulated)
        for pod in self._kubelets.pods_of(simulated):
            self._apply_stages(pod)
        return node

    def _node_event(self, simulated: SimulatedNode, reason: str) -> None:
        text = f"Node {simulated.name} status is now: {reason}"
        self._simulation.event(simulated.object, "Normal", reason, text, host=simulated.name)

    def _remove_node(self, simulated: SimulatedNode, *, deleted: bool) -> None:
        """Remove a node that is deleted, or marked as not simulated."""
        del self._nodes[simulated.name]
        if self._stages is not None:
            self._stages.forget(simulated.uid)
        if self._slices is not None:
            self._slices.remove(simulated.name)
        if not deleted:
            self._heartbeats.stopped(simulated)
        self._heartbeats.forget(simulated)
        if deleted:
            self._addresses.release(simulated.object)
        for pod in self._kubelets.forget_node(simulated):
            if self._stages is not None:
                self._stages.forget(pod.uid)
            if deleted:
                self._add_orphan(pod.object)

    # --- pods -------------------------------------------------------------------------------------

    def _apply_pod(self, current: JSON) -> None:
        pod = self._kubelets.get(current["metadata"]["uid"])
        if pod is not None:
            self._kubelets.changed(pod, current)
            self._apply_stages(pod)
            return
        node = self._nodes.get(current["spec"]["nodeName"])
        if node is not None:
            self._pod_bound(current, node)
        elif self._store.get(NODES, "", current["spec"]["nodeName"]) is None and self._settings.every_node:
            self._add_orphan(current)

    def _pod_bound(self, obj: JSON, node: SimulatedNode) -> None:
        stages = None if _opted_out(obj) else self._stages
        self._kubelets.add_pod(obj, node, staged=stages is not None and stages.replaces("Pod"))
        pod = self._kubelets.get(obj["metadata"]["uid"])
        if pod is not None:
            self._apply_stages(pod)

    def _add_orphan(self, pod: JSON) -> None:
        """Remember a pod that starts when its node is created."""
        self._orphans.setdefault(pod["spec"]["nodeName"], {})[pod["metadata"]["uid"]] = pod

    def _apply_stages(self, pod: SimulatedPod) -> None:
        """Apply the stages of the file to the pod, if there are any."""
        if self._stages is not None and not _opted_out(pod.object):
            current = self._simulation.current_pod(pod.object)
            if current is not None:
                self._stages.pod_seen(current, pod)


def _is_at_rest(pod: JSON) -> bool:
    """Return True for a pod that does not change by itself: ready, not deleted, and its containers restart."""
    return (
        is_true(pod, "Ready")
        and "deletionTimestamp" not in pod["metadata"]
        and (pod["spec"].get("restartPolicy") or "Always") == "Always"
    )


def _opted_out(pod: JSON) -> bool:
    return marker(pod, "stages") == "false"
