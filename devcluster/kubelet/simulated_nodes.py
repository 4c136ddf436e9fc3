"""Simulated nodes: what kubelets, and the controllers that watch over nodes and their pods, do in a real cluster.

Every Node in the store has a kubelet here, those that `NodeSettings.count` asks for and those that users create; or,
without `every_node`, those marked by the annotation (or label) kubeloop.dev/node=simulated or kwok.x-k8s.io/node=fake.
The parts share one agenda (`simulation`), so that there is no task per pod or node:

    Kubelets        what becomes of the pods bound to a node                                kubelet
    StagePlayer     instead of it, or on top of it: the stages of a file, as KWOK has them   stages
    NodeLifecycle   nodes that are not heard of: conditions, taints, evictions by zone       node_lifecycle
    TaintEviction   pods that do not tolerate a NoExecute taint                              taint_eviction
    OrphanedPods    pods whose node does not exist                                           pod_collection

Annotations (or labels) of a pod that steer its kubelet; times in seconds:
    kubeloop.dev/start-delay-seconds   instead of the settings' start delay
    kubeloop.dev/image-pull-seconds    the images are pulled first, and it takes this time
    kubeloop.dev/image-pull-error      the text of the error with which its images cannot be pulled, until it goes
    kubeloop.dev/not-ready             "true": running but not ready, until the annotation goes
    kubeloop.dev/run-seconds           its containers exit after this time
    kubeloop.dev/exit-code             and with this code; without run-seconds they exit at once
    kubeloop.dev/crashes               only so many times; after that they run on
    kubeloop.dev/stop-seconds          instead of the settings' stop delay; never longer than the grace period
    kubeloop.dev/jitter                0.2: each of these times varies by up to a fifth
    kubeloop.dev/stages                "false": the stages of a file are not for this pod
and of a node:
    kubeloop.dev/fail                  one of node_objects.FAILURE_MODES, until the annotation goes
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kubeloop.devcluster.api.conditions import is_true
from kubeloop.devcluster.controllers.node_lifecycle import MONITOR_SECONDS, NodeLifecycle
from kubeloop.devcluster.controllers.pod_gc import OUT_OF_SERVICE, PodGarbageCollector, force_delete, out_of_service
from kubeloop.devcluster.controllers.taint_eviction import TaintEviction
from kubeloop.devcluster.kubelet.kubelet import Kubelets
from kubeloop.devcluster.kubelet.simulated_pod import SimulatedNode, SimulatedPod, mark
from kubeloop.devcluster.simulation import node_objects
from kubeloop.devcluster.simulation.node_addresses import NodeAddresses
from kubeloop.devcluster.simulation.node_objects import LEASE_NAMESPACE, NodeSettings
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.devcluster.storage.store import Change, Store, StoredObject
from kubeloop.kube.clock import Clock, rfc3339, rfc3339_micro
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import LEASES, NODES, PODS

if TYPE_CHECKING:
    from kubeloop.devcluster.kubelet.stages.files import Stage
    from kubeloop.devcluster.kubelet.stages.requests import StageRequests

log = logging.getLogger(__name__)

_BATCH = 50  # pieces of work between two turns for everybody else on the event loop: about 5 ms
_REGISTERED = "registered nodes"  # so many of the settings' nodes have been created, says a note in the store
_MAX_SLICES = 100  # leases and reports of all nodes are spread over this many points of their period


class SimulatedNodes:
    """All nodes of a development cluster. `run()` once; register() may be called before it."""

    def __init__(
        self,
        store: Store,
        settings: NodeSettings | None = None,
        *,
        clock: Clock,
        rng: random.Random,
        stages: Iterable[Stage] = (),
        requests: StageRequests | None = None,
    ) -> None:
        """requests: to the server of the store, for stages that apply other objects."""
        self._store = store
        self._settings = settings or NodeSettings()
        self._simulation = Simulation(store, self._settings, clock=clock, rng=rng)
        self._stages = None
        stages = [stage for stage in stages if stage.of_kubelets]
        if stages:
            from kubeloop.devcluster.kubelet.stages.pod_stages import StagePlayer

            self._stages = StagePlayer(self._simulation, stages, requests)
        self._kubelets = Kubelets(self._simulation, quiet=self._stages is None)
        self._eviction = TaintEviction(self._simulation)
        self._orphans = PodGarbageCollector(self._simulation)
        self._nodes: dict[str, SimulatedNode] = {}
        self._lifecycle = NodeLifecycle(self._simulation, lambda name: self._kubelets.on(self._nodes[name]))
        self._next_index = self._settings.count
        self._addresses = NodeAddresses()
        self._inbox: deque[Change] = deque()
        self._wake = asyncio.Event()

    # --- lifecycle --------------------------------------------------------------------------------

    @property
    def _kubelets_report(self) -> bool:
        """Whether the conditions of nodes are the kubelets' to report, and not made by stages."""
        return self._stages is None or not self._stages.replaces("Node")

    def register(self) -> None:
        """Create the Nodes of the settings, each once in the life of the store: one that was removed stays removed."""
        before = self._store.get_number(_REGISTERED)
        if self._settings.count <= before:
            return
        for node in self._store.list(NODES):
            self._addresses.take(node)
        for index in range(before, self._settings.count):
            if self._store.get(NODES, "", self._settings.name(index)) is None:
                node = node_objects.node_object(
                    self._settings, index, now=self._simulation.wall(), uid=self._simulation.uid()
                )
                self._store.create(NODES, self._completed(node, index) or node)
        self._store.set_number(_REGISTERED, self._settings.count)

    def _completed(self, node: JSON, index: int) -> JSON | None:
        """As node_objects.completed_node(); what it has of addresses then is taken."""
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
        unsubscribe = [self._store.subscribe(NODES, self._receive), self._store.subscribe(PODS, self._receive)]
        grace = self._settings.monitor_grace_seconds
        try:
            nodes = self._store.list(NODES)
            for node in nodes:
                self._addresses.take(node)
            for node in nodes:
                if self._is_ours(node):
                    self._node_appeared(node, told=False)
            for pod in self._store.list(PODS):
                if pod["spec"].get("nodeName"):
                    self._inbox.append(Change("ADDED", StoredObject("", pod, 0), None, 0.0))
            # as real kubelets every 10 s, unless somebody wants silence to be noticed sooner
            self._beat((0, min(self._settings.lease_renew_seconds, grace / 5), self._renew_lease))
            self._beat((0, self._settings.status_report_seconds, self._report))
            self._beat((0, min(MONITOR_SECONDS, grace / 10), self._monitor))
            while True:
                await self._work_through()
                alarm, due = None, self._simulation.timers.next_due()
                if due is not None:
                    alarm = asyncio.get_running_loop().call_at(due, self._wake.set)
                try:
                    await self._wake.wait()
                finally:
                    if alarm is not None:
                        alarm.cancel()
                self._wake.clear()
        finally:
            for each in unsubscribe:
                each()

    async def _work_through(self) -> None:
        """Handle all changes and all that is due, in batches."""
        done = 0
        while True:
            if self._inbox:
                self._guarded(self._apply, self._inbox.popleft())
            else:
                timer = self._simulation.timers.pop(self._simulation.now())
                if timer is None:
                    return
                if timer.act is not None:
                    self._guarded(timer.act, timer.argument)
            done += 1
            if done % _BATCH == 0:
                await asyncio.sleep(0)

    def _guarded(self, act: Callable[[Any], None], argument: Any) -> None:
        """One object that cannot be simulated must not stop all the others."""
        try:
            act(argument)
        except Exception:
            log.exception("simulated node failed at an object")

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
        uid = obj["metadata"]["uid"]
        if change.type == "DELETED":
            self._kubelets.forget(uid)
            self._orphans.forget(uid)
            self._eviction.forget(uid)
            if self._stages is not None:
                self._stages.forget(uid)
            return
        # What counts is the pod as it is now: our own writes may have overtaken this change.
        current = self._simulation.current_pod(obj)
        if current is not None:
            self._apply_pod(current)

    # --- nodes ------------------------------------------------------------------------------------

    def _is_ours(self, node: JSON) -> bool:
        marked = node_objects.is_simulated(node)
        return self._settings.every_node if marked is None else marked

    def _apply_node(self, change: Change) -> None:
        name = change.now.object["metadata"]["name"]
        current = self._store.get(NODES, "", name)
        known = self._nodes.get(name)
        if known is not None and (current is None or current["metadata"]["uid"] != known.uid):
            self._node_gone(known, deleted=True)
            known = None
        if current is None:
            return
        if not self._is_ours(current):
            if known is not None:  # has been given away
                self._node_gone(known, deleted=False)
        elif known is None:
            self._node_appeared(current, told=True)
        else:
            self._node_changed(known, current)

    def _node_appeared(self, node: JSON, *, told: bool) -> None:
        """A node is new here. told: by an event, too."""
        name = node["metadata"]["name"]
        index = self._index_of(name)
        complete = self._completed(node, index)
        if complete is not None:
            node = self._simulation.update(NODES, complete, quiet=True)
        known = self._nodes[name] = SimulatedNode(node, index)
        known.failing = ""  # what it says of a failure is news, to be reported like any other
        if told:
            text = f"Node {name} event: Registered Node {name} in Controller"
            self._simulation.event(node, "Normal", "RegisteredNode", text, component="node-controller")
        self._node_changed(known, node)
        self._renew_lease(known)
        for pod in self._orphans.release(name):
            self._pod_bound(pod, known)

    def _index_of(self, name: str) -> int:
        prefix, first = self._settings.name_prefix, self._settings.first_number
        number = name.removeprefix(prefix)
        if name.startswith(prefix) and number.isdigit() and 0 <= int(number) - first < self._settings.count:
            return int(number) - first
        self._next_index += 1
        return self._next_index - 1

    def _node_changed(self, known: SimulatedNode, node: JSON) -> None:
        had, was_failing, was_cordoned = known.no_execute, known.failing, known.unschedulable
        known.refresh(node)
        if known.failing != was_failing:
            node = self._failure_changed(known, node, was_failing)
        node = self._lifecycle.observe(node)
        if node is not known.object:
            known.refresh(node)
        if known.unschedulable != was_cordoned and not known.silent:
            reason = "NodeNotSchedulable" if known.unschedulable else "NodeSchedulable"
            self._node_event(known, reason)
        if known.no_execute != had:
            for pod in self._kubelets.on(known):
                self._eviction.consider(pod, known.no_execute)
        if any(taint.get("key") == OUT_OF_SERVICE for taint in node["spec"].get("taints") or ()):
            for pod in self._kubelets.on(known):
                self._collect_if_out_of_service(pod)
        if self._stages is not None:
            self._stages.node_seen(node, known)

    def _failure_changed(self, known: SimulatedNode, node: JSON, before: str) -> JSON:
        """The node begins to fail, in another way than before, or no longer."""
        if known.silent:
            return node
        was_ready = is_true(node, "Ready")
        node = self._simulation.update(NODES, node_objects.reported(node, self._simulation.wall()), quiet=True)
        known.refresh(node)
        if is_true(node, "Ready") != was_ready:
            self._node_event(known, "NodeNotReady" if was_ready else "NodeReady")
        if before == "unreachable":
            self._renew_lease(known)
        self._kubelets.back(known)
        for pod in list(known.pods.values()):
            self._play_stages(pod)
        return node

    def _node_event(self, known: SimulatedNode, reason: str) -> None:
        text = f"Node {known.name} status is now: {reason}"
        self._simulation.event(known.object, "Normal", reason, text, host=known.name)

    def _node_gone(self, known: SimulatedNode, *, deleted: bool) -> None:
        """The node's machine is no more: nothing of it runs, and nobody reports. Or it is others' to simulate."""
        del self._nodes[known.name]
        self._lifecycle.forget(known.name)
        if self._stages is not None:
            self._stages.forget(known.uid)
        if deleted:
            self._addresses.release(known.object)
            text = f"Node {known.name} event: Removing Node {known.name} from Controller"
            self._simulation.event(known.object, "Normal", "RemovingNode", text, component="node-controller")
        for pod in list(known.pods.values()):
            self._kubelets.forget(pod.uid)
            self._eviction.forget(pod.uid)
            if self._stages is not None:
                self._stages.forget(pod.uid)
            if deleted:
                self._orphans.add(pod.object)

    # --- leases and reports -----------------------------------------------------------------------

    def _beat(self, beat: tuple[int, float, Callable[[SimulatedNode], None]]) -> None:
        """Do something for one slice of the nodes, and plan the next slice: all nodes once a period (seconds)."""
        number, period, act = beat
        slices = max(1, min(_MAX_SLICES, len(self._nodes)))
        for name in list(self._nodes)[number % slices :: slices]:
            self._guarded(act, self._nodes[name])
        when = self._simulation.now() + period / slices
        self._simulation.timers.at(when, self._beat, ((number + 1) % slices, period, act))

    def _renew_lease(self, known: SimulatedNode) -> None:
        if known.silent:
            return
        now = self._simulation.clock.now()
        lease = self._store.get(LEASES, LEASE_NAMESPACE, known.name)
        if lease is None:
            lease = node_objects.lease_object(
                known.object, now=rfc3339(now), now_micro=rfc3339_micro(now), uid=self._simulation.uid()
            )
            self._store.create(LEASES, lease)
        else:
            self._store.update(LEASES, {**lease, "spec": {**lease["spec"], "renewTime": rfc3339_micro(now)}})

    def _report(self, known: SimulatedNode) -> None:
        node = self._store.get(NODES, "", known.name)
        if node is None or known.silent or not self._kubelets_report:
            return
        known.refresh(self._simulation.update(NODES, node_objects.reported(node, self._simulation.wall())))

    def _monitor(self, known: SimulatedNode) -> None:
        self._lifecycle.check(known.name)

    # --- pods -------------------------------------------------------------------------------------

    def _apply_pod(self, current: JSON) -> None:
        pod = self._kubelets.get(current["metadata"]["uid"])
        if pod is not None:
            if current["spec"] != pod.spec:
                self._eviction.consider(current, pod.node.no_execute)
            self._kubelets.changed(pod, current)
            self._collect_if_out_of_service(current)
            self._play_stages(pod)
            return
        node = self._nodes.get(current["spec"]["nodeName"])
        if node is not None:
            self._pod_bound(current, node)
        elif self._store.get(NODES, "", current["spec"]["nodeName"]) is None and self._settings.every_node:
            self._orphans.add(current)

    def _pod_bound(self, obj: JSON, node: SimulatedNode) -> None:
        stages = None if _opted_out(obj) else self._stages
        self._kubelets.bound(obj, node, staged=stages is not None and stages.replaces("Pod"))
        self._eviction.consider(obj, node.no_execute)
        pod = self._kubelets.get(obj["metadata"]["uid"])
        if pod is not None:
            self._play_stages(pod)

    def _play_stages(self, pod: SimulatedPod) -> None:
        """Let the stages of the file, if there are any for this pod, decide what comes next."""
        if self._stages is not None and not _opted_out(pod.object):
            current = self._simulation.current_pod(pod.object)
            if current is not None:
                self._stages.pod_seen(current, pod)

    def _collect_if_out_of_service(self, pod: JSON) -> None:
        """A pod being deleted whose kubelet will never confirm it, because somebody has declared the node dead."""
        if pod["metadata"].get("deletionTimestamp") and out_of_service(self._simulation, pod["spec"]["nodeName"]):
            name = pod["spec"]["nodeName"]
            force_delete(self._simulation, pod, f"PodGC: node {name} is out of service")


def _opted_out(pod: JSON) -> bool:
    return mark(pod, "stages") == "false"
