"""Nodes whose kubelet is external, or missing: handled by the node controllers, without a simulated kubelet.

As with kube-controller-manager: a Node without heartbeats (status reports or Lease renewals) is Unknown after the grace
period, or after 60 s if it has never had the condition Ready; it is tainted, its pods are not ready and are evicted
after their tolerationSeconds. Pods of a deleted Node are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.devcluster.controllers.node_lifecycle import NodeLifecycle
from kubeloop.devcluster.controllers.pod_gc import OUT_OF_SERVICE, PodGarbageCollector, collect_if_out_of_service
from kubeloop.devcluster.controllers.taint_eviction import TaintEviction, no_execute_taints
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PODS


class ClientNode:
    """A Node that a client created. no_execute: its NoExecute taints."""

    def __init__(self, node: JSON) -> None:
        self.name: str = node["metadata"]["name"]
        self.uid: str = node["metadata"]["uid"]
        self.object = node
        self.no_execute: list[JSON] = []


class ClientNodes:
    def __init__(
        self,
        simulation: Simulation,
        lifecycle: NodeLifecycle,
        eviction: TaintEviction,
        orphans: PodGarbageCollector,
    ) -> None:
        self._simulation = simulation
        self._lifecycle = lifecycle
        self._eviction = eviction
        self._orphans = orphans
        self.nodes: dict[str, ClientNode] = {}

    def pods_on(self, name: str) -> Iterator[JSON]:
        """Return the stored pods that are bound to a node."""
        return (pod for pod in self._simulation.store.list(PODS) if pod["spec"].get("nodeName") == name)

    def changed(self, node: JSON, *, record_event: bool = True) -> None:
        """Handle a new or changed Node. record_event: record the event RegisteredNode of a new one."""
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        known = self.nodes.get(name)
        if known is not None and known.uid != uid:
            self.deleted(name)
            known = None
        if known is None:
            known = self.nodes[name] = ClientNode(node)
            if record_event:
                text = f"Node {name} event: Registered Node {name} in Controller"
                self._simulation.event(node, "Normal", "RegisteredNode", text, component="node-controller")
            for pod in self._orphans.release(name):
                self.pod_changed(pod)
        known.object = self._lifecycle.observe(node)
        taints = no_execute_taints(known.object)
        if taints != known.no_execute:
            known.no_execute = taints
            for pod in self.pods_on(name):
                self._eviction.consider(pod, taints)
        if any(taint.get("key") == OUT_OF_SERVICE for taint in (known.object.get("spec") or {}).get("taints") or ()):
            for pod in self.pods_on(name):
                collect_if_out_of_service(self._simulation, pod)

    def forget(self, name: str) -> None:
        """Stop handling a node, which has been deleted or is simulated now."""
        if self.nodes.pop(name, None) is not None:
            self._lifecycle.forget(name)

    def deleted(self, name: str) -> None:
        """Handle the deletion of a node."""
        node = self.nodes[name]
        self.forget(name)
        text = f"Node {name} event: Removing Node {name} from Controller"
        self._simulation.event(node.object, "Normal", "RemovingNode", text, component="node-controller")
        for pod in self.pods_on(name):
            self._eviction.forget(pod["metadata"]["uid"])
            self._orphans.add(pod)

    def pod_changed(self, pod: JSON) -> None:
        """Handle a new or changed pod of one of the nodes."""
        self._eviction.consider(pod, self.nodes[pod["spec"]["nodeName"]].no_execute)
        collect_if_out_of_service(self._simulation, pod)
