"""Simulated nodes and pods without the other parts of a cluster."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

from kubeloop.devcluster.kubelet.pods.container_lifecycle import start
from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.devcluster.storage.store import ObjectStore
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
WALL = "2026-01-01T00:00:00Z"


def new_simulation(**settings: Any) -> Simulation:
    """Return a simulation with an empty store, whose wall time is WALL."""
    clock = SetClock(datetime(2026, 1, 1, tzinfo=UTC))
    store = ObjectStore(seconds=lambda: 0.0)
    return Simulation(store, NodeSettings(**settings), clock=clock, rng=random.Random(1))


def simulated_node(cidr: str = "10.128.3.0/24", **status: Any) -> SimulatedNode:
    obj: JSON = {"metadata": {"name": "node-0", "uid": "n"}, "spec": {"podCIDR": cidr}, "status": status}
    return SimulatedNode(obj, 0)


def simulated_pod(
    node: SimulatedNode | None = None,
    *,
    name: str = "web",
    annotations: JSON | None = None,
    settings: NodeSettings | None = None,
    **spec: Any,
) -> SimulatedPod:
    """Return a pod; annotations without the prefix kubeloop.dev/."""
    prefixed = {f"kubeloop.dev/{key}": value for key, value in (annotations or {}).items()}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": prefixed}
    container = {"name": "web", "image": "nginx", "resources": {"requests": {"cpu": "500m"}}}
    obj: JSON = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}
    obj["spec"] = {"nodeName": "node-0", "containers": [container], **spec}
    return SimulatedPod(obj, node or simulated_node(), settings=settings or NodeSettings(), rng=random.Random(1))


def running_pod(**fields: Any) -> SimulatedPod:
    """Return a pod whose containers all run."""
    pod = simulated_pod(**fields)
    pod.seen = True
    for run in pod.runs:
        start(pod, run, 0.0, WALL)
    return pod
