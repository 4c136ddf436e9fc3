"""Nodes whose kubelet is external, or missing: handled by the node controllers, without a simulated kubelet.

As with kube-controller-manager: a Node without heartbeats (status reports or Lease renewals) is Unknown after the grace
period, or after 60 s if it has never had the condition Ready; it is tainted, and its pods are not ready.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.devcluster.controllers.node_lifecycle import NodeLifecycle
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PODS


class ClientNode:
    """A Node that a client created."""

    def __init__(self, node: JSON) -> None:
        self.name: str = node["metadata"]["name"]
        self.uid: str = node["metadata"]["uid"]
        self.object = node


class ClientNodes:
    def __init__(self, simulation: Simulation, lifecycle: NodeLifecycle) -> None:
        self._simulation = simulation
        self._lifecycle = lifecycle
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
        known.object = self._lifecycle.observe(node)

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
