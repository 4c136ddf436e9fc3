"""State of a simulated node that its pods depend on: conditions, free resources, host ports and addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubeloop.devcluster.kubelet.pods.pod_admission import Amounts, HostPort, amounts, is_restricted
from kubeloop.devcluster.kubelet.pods.pod_network import PodNetwork
from kubeloop.devcluster.simulation.node_addresses import host_ip
from kubeloop.devcluster.simulation.node_objects import failure_mode
from kubeloop.kube.json_object import JSON


class SimulatedNode:
    """One node. `used`: sum of the requests of admitted pods that have not ended."""

    def __init__(self, node: JSON, index: int) -> None:
        self.index = index
        self.name: str = node["metadata"]["name"]
        self.uid: str = node["metadata"]["uid"]
        self.used: Amounts = {}
        self.allocatable: Amounts = {}
        self._counted: dict[str, Amounts] = {}  # by uid of the pod, as are the ports
        self._ports: dict[str, Sequence[HostPort]] = {}
        self._allocatable_json: Any = None
        self.network = PodNetwork(node["spec"]["podCIDR"], index)
        self.object = node
        self.failing = ""
        self.restricted = False  # it rejects pods for its conditions or taints
        self.unschedulable = False
        self.host_ip = ""
        self.refresh(node)

    @property
    def is_unreachable(self) -> bool:
        """True while the node is partitioned from the API server."""
        return self.failing == "unreachable"

    @property
    def is_network_unavailable(self) -> bool:
        """True while only pods in the host network can start."""
        return self.failing == "not-ready"

    def refresh(self, node: JSON) -> None:
        """Apply a new version of the Node."""
        self.object = node
        self.failing = failure_mode(node)
        self.restricted = is_restricted(node)
        self.unschedulable = bool((node.get("spec") or {}).get("unschedulable"))
        status = node.get("status") or {}
        if status.get("allocatable") != self._allocatable_json:
            self._allocatable_json = status.get("allocatable")
            self.allocatable = amounts(self._allocatable_json)
        addresses = status.get("addresses") or ()
        internal = (address["address"] for address in addresses if address.get("type") == "InternalIP")
        self.host_ip = next(internal, host_ip(self.index))

    def used_ports(self, *, without: str = "") -> Iterator[HostPort]:
        """Yield the host ports of the pods. without: uid of a pod that is left out."""
        for uid, ports in self._ports.items():
            if uid != without:
                yield from ports

    def used_without(self, uid: str) -> Amounts:
        """Return what the other pods use."""
        own = self._counted.get(uid, {})
        return {name: value - own.get(name, 0) for name, value in self.used.items()}

    def count(self, uid: str, requests: Amounts, ports: Sequence[HostPort]) -> None:
        """Count the requests and host ports of a pod as used."""
        self._counted[uid] = requests
        for name, value in requests.items():
            self.used[name] = self.used.get(name, 0) + value
        if ports:
            self._ports[uid] = ports

    def recount(self, uid: str, requests: Amounts) -> None:
        """Replace the requests of a pod that is counted."""
        if uid in self._counted:
            ports = self._ports.get(uid, ())
            self.release(uid)
            self.count(uid, requests, ports)

    def release(self, uid: str) -> None:
        """Free the resources of a pod that has ended."""
        for name, value in self._counted.pop(uid, {}).items():
            self.used[name] -= value
        self._ports.pop(uid, None)
