"""State of a pod on a simulated node: containers, annotations and due times.

Independent of store and clock; times ending in _at are seconds of the event loop's clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from kubeloop.devcluster.kubelet.containers.container_run import STATUS_FIELDS, ContainerRun, container_runs
from kubeloop.devcluster.kubelet.pods.pod_admission import host_ports, requested_amounts
from kubeloop.devcluster.kubelet.pods.pod_annotations import markers, number_of
from kubeloop.devcluster.kubelet.pods.pod_conditions import Resize
from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.kubelet.referenced_objects import Kind
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.simulation.timers import Timer
from kubeloop.kube.json_object import JSON


class SimulatedPod:
    """One pod bound to a node.

    Due times, None if not due: start_at; pull_backoff_at; deadline_at; resize_at (allocated resources are applied);
    stop_at (in deletion: all containers have stopped); and those of the containers. timer: for the earliest of them.
    missing: kinds and names of the objects that its volumes or containers wait for. is_killed: its containers do not
    stop within the grace period. seen: the kubelet has observed the pod. staged: stages of a file control it, not the
    kubelet. allocated: resources at pod level that count for the node. deferred, resizing: a resize that waits, and one
    that is being applied.
    """

    __slots__ = (
        "_container_spec",
        "_containers",
        "_marked",
        "_markers",
        "_rng",
        "address",
        "allocated",
        "deadline_at",
        "deferred",
        "ended",
        "failure",
        "grace_seconds",
        "is_killed",
        "key",
        "missing",
        "node",
        "object",
        "pull_backoff_at",
        "pull_seconds",
        "requests",
        "resize_at",
        "resizing",
        "runs",
        "seen",
        "settings",
        "spec",
        "staged",
        "start_at",
        "start_time",
        "stop_at",
        "stopped",
        "timer",
        "uid",
    )

    def __init__(self, obj: JSON, node: SimulatedNode, *, settings: NodeSettings, rng: random.Random) -> None:
        metadata = obj["metadata"]
        self.object = obj
        self._container_spec: JSON | None = None  # of which _containers are
        self._containers: dict[str, JSON] = {}
        self._marked: tuple[JSON | None, JSON | None] = (None, None)  # of which _markers are
        self._markers: dict[str, str] = {}
        self.spec: JSON = obj["spec"]  # last applied; `object` may be newer
        self.uid: str = metadata["uid"]
        self.key = f"{metadata['namespace']}/{metadata['name']}"
        self.node = node
        self.settings = settings
        self._rng = rng
        self.seen = self.staged = False
        self.requests = requested_amounts(obj)
        self.runs: list[ContainerRun] = container_runs(obj)
        self.address = ""
        self.start_time = ""
        self.failure: tuple[str, str] | None = None
        self.ended = False  # Succeeded, Failed or rejected
        self.stopped = False  # no container is started again, whatever the restart policy
        self.missing: set[tuple[Kind, str]] = set()
        self.timer: Timer | None = None
        self.pull_seconds: float | None = None  # duration of the image pulls
        self.start_at: float | None = None
        self.pull_backoff_at: float | None = None
        self.deadline_at: float | None = None
        self.resize_at: float | None = None
        self.stop_at: float | None = None
        self.grace_seconds = 0.0  # for which stop_at has been set
        self.is_killed = False
        self.allocated: JSON | None = obj["spec"].get("resources")
        self.deferred: Resize | None = None
        self.resizing: Resize | None = None

    @property
    def restart_policy(self) -> str:
        return self.object["spec"].get("restartPolicy") or "Always"

    def markers(self) -> Mapping[str, str]:
        """Return the values of kubeloop's annotations and labels by name; most pods have none."""
        metadata = self.object["metadata"]
        annotations, labels = metadata.get("annotations"), metadata.get("labels")
        if annotations is not self._marked[0] or labels is not self._marked[1]:
            self._marked = annotations, labels
            self._markers = markers(metadata)
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
        return seconds * (1 + self._rng.uniform(-share, share)) if share else seconds

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
