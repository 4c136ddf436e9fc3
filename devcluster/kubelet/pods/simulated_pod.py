"""State of a pod on a simulated node: containers, annotations and due times.

Independent of store and clock; times ending in _at are seconds of the event loop's clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kubeloop.devcluster.kubelet.containers.container_run import STATUS_FIELDS, ContainerRun, container_runs
from kubeloop.devcluster.kubelet.pods.pod_admission import Amounts, host_ports, requested_amounts
from kubeloop.devcluster.kubelet.pods.pod_annotations import markers, number_of
from kubeloop.devcluster.kubelet.pods.pod_conditions import Resize
from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.kubelet.referenced_objects import Kind
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.simulation.timers import Timer
from kubeloop.kube.json_object import JSON


class SimulatedPod(msgspec.Struct, eq=False):
    """One pod bound to a node.

    Due times, None if not due: start_at; pull_backoff_at; deadline_at; resize_at (allocated resources are applied);
    stop_at (in deletion: all containers have stopped); and those of the containers. timer: for the earliest of them.
    missing: kinds and names of the objects that its volumes or containers wait for. is_killed: its containers do not
    stop within the grace period. seen: the kubelet has observed the pod. staged: stages of a file control it, not the
    kubelet. allocated: resources at pod level that count for the node. deferred, resizing: a resize that waits, and one
    that is being applied.
    """

    object: JSON
    node: SimulatedNode
    settings: NodeSettings
    rng: random.Random
    staged: bool = False
    seen: bool = False
    uid: str = ""
    key: str = ""
    spec: JSON = {}  # last applied; `object` may be newer
    requests: Amounts = {}
    runs: list[ContainerRun] = []
    address: str = ""
    start_time: str = ""
    failure: tuple[str, str] | None = None
    ended: bool = False  # Succeeded, Failed or rejected
    stopped: bool = False  # no container is started again, whatever the restart policy
    missing: set[tuple[Kind, str]] = set()
    timer: Timer | None = None
    pull_seconds: float | None = None  # duration of the image pulls
    start_at: float | None = None
    pull_backoff_at: float | None = None
    deadline_at: float | None = None
    resize_at: float | None = None
    stop_at: float | None = None
    grace_seconds: float = 0.0  # for which stop_at has been set
    is_killed: bool = False
    allocated: JSON | None = None
    deferred: Resize | None = None
    resizing: Resize | None = None
    _container_spec: JSON | None = None  # of which _containers are
    _containers: dict[str, JSON] = {}
    _marked: tuple[Any, Any] = (..., ...)  # annotations and labels of which _markers are; either may be None
    _markers: dict[str, str] = {}

    def __post_init__(self) -> None:
        metadata, self.spec = self.object["metadata"], self.object["spec"]
        self.uid = metadata["uid"]
        self.key = f"{metadata['namespace']}/{metadata['name']}"
        self.requests = requested_amounts(self.object)
        self.runs = container_runs(self.object)
        self.allocated = self.spec.get("resources")

    @property
    def restart_policy(self) -> str:
        return self.object["spec"].get("restartPolicy") or "Always"

    def markers(self) -> Mapping[str, str]:
        """Return the values of kubeloop's annotations and labels by name; most pods have none.

        The settings may have values for those that the pod does not have.
        """
        metadata = self.object["metadata"]
        annotations, labels = metadata.get("annotations"), metadata.get("labels")
        if annotations is not self._marked[0] or labels is not self._marked[1]:
            self._marked = annotations, labels
            self._markers = markers(metadata)
            if self.settings.pod_markers is not None:
                self._markers = {**self.settings.pod_markers(self.object), **self._markers}
        return self._markers

    @property
    def is_held_unready(self) -> bool:
        return self.markers().get("not-ready") == "true"

    def seconds(self, name: str) -> float | None:
        """Return an annotation as seconds, with the pod's jitter; None if it is absent or invalid."""
        text = self.markers().get(name)
        return None if text is None else self.jittered(number_of(text))

    def jittered(self, seconds: float | None) -> float | None:
        """Return a random duration that differs from `seconds` by the jitter of the pod, or of the settings."""
        if seconds is None:
            return None
        jitter = number_of(self.markers().get("jitter"))
        share = self.settings.jitter if jitter is None else min(jitter, 1.0)
        return seconds * (1 + self.rng.uniform(-share, share)) if share else seconds

    def containers(self) -> Mapping[str, JSON]:
        """Return the containers of any kind from the spec by name."""
        spec = self.object["spec"]
        if spec is not self._container_spec:
            self._container_spec = spec
            self._containers = {
                container["name"]: container for field in STATUS_FIELDS for container in spec.get(field) or ()
            }
        return self._containers

    def container(self, run: ContainerRun) -> JSON:
        """Return the container of the spec, {} if there is none."""
        return self.containers().get(run.name, {})

    def count_resources(self) -> None:
        """Count the requests and host ports of the pod as used on its node."""
        self.node.count(self.uid, self.requests, host_ports(self.object))

    def adopt_address(self) -> None:
        """Take the address of the status, if it has one."""
        self.address = (self.object.get("status") or {}).get("podIP", "")
        if self.address:
            self.node.network.take(self.address)

    def assign_address(self) -> None:
        """Give the pod an address, unless it has one."""
        if not self.address:
            is_in_host_network = self.object["spec"].get("hostNetwork")
            self.address = self.node.host_ip if is_in_host_network else self.node.network.next_address()

    @property
    def resizes(self) -> Sequence[Resize]:
        """Return the resizes that are not finished."""
        if self.deferred is self.resizing is None:
            return ()
        return [resize for resize in (self.deferred, self.resizing) if resize is not None]

    def next_due(self) -> float | None:
        """Return the earliest due time, None if nothing is due."""
        if self.staged or not self.seen:
            return None
        if self.stop_at is not None:
            return self.stop_at
        if self.ended:
            return None
        times = [self.start_at, self.pull_backoff_at, self.deadline_at, self.resize_at]
        for run in self.runs:
            times += (run.exit_at, run.restart_at)
            if run.state == "running" and run.is_probed:
                if not run.started:
                    times.append(run.started_at)
                elif not run.ready and not self.is_held_unready:
                    times.append(run.ready_at)
                times.append(run.killed_at)
                times += (failure.seconds for failure in run.probe_failures)
        return min((time for time in times if time is not None and time < math.inf), default=None)
