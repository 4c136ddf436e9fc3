"""State of one container of a simulated pod on its node."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import msgspec

from kubeloop.devcluster.kubelet.containers.probes import ProbeFailure
from kubeloop.kube.json_object import JSON

Role = Literal["init", "sidecar", "main", "ephemeral"]
ContainerState = Literal["waiting", "running", "terminated"]

KILLED = 137
"""Exit code of a container that was ended by SIGKILL."""
TERMINATED = 143
"""Exit code of a container that was ended by SIGTERM."""
CONTAINER_STATUS_UNKNOWN = "ContainerStatusUnknown"
"""Reason of a container of which the runtime reports nothing when its pod has ended."""
STATUS_FIELDS = {
    "initContainers": "initContainerStatuses",
    "containers": "containerStatuses",
    "ephemeralContainers": "ephemeralContainerStatuses",
}
"""Fields of a pod's spec with containers, and those of the status."""
NOT_LOCATED = "The container could not be located when the pod was terminated"


class ContainerRun(msgspec.Struct):
    """One container of a pod on its node.

        waiting --start--> running --exit--> terminated
           ^                                     |
           +---- back-off before a restart ------+

    Times ending in _at are seconds of the event loop's clock; the others are metav1.Time texts. `since` is when the
    running container started, `ended` when it terminated. exit_at, restart_at: None if not due. allocated: the
    container's resources that count for the node; resources: those with which it runs.
    """

    name: str
    image: str
    role: Role
    state: ContainerState = "waiting"
    reason: str = "ContainerCreating"
    message: str = ""
    restarts: int = 0
    exit_code: int = 0
    since: str = ""
    ended: str = ""
    started: bool = False
    ready: bool = False
    started_at: float = 0.0  # loop time at which the startup probe, if any, succeeds
    ready_at: float = 0.0  # loop time at which the readiness probe, if any, succeeds
    running_at: float = 0.0  # loop time of the start
    exit_at: float | None = None
    restart_at: float | None = None
    probe_failures: tuple[ProbeFailure, ...] = ()  # that are not reported, in seconds of the loop
    killed_at: float = math.inf  # loop time at which the kubelet stops it for a failed probe
    kill_cause: str = ""
    backoff_restarts: int = 0  # restarts that count for the back-off
    last_state: JSON | None = None
    allocated: JSON | None = None
    resources: JSON | None = None

    @property
    def is_probed(self) -> bool:
        """True if the container can be ready."""
        return self.role in ("main", "sidecar")

    @property
    def has_succeeded(self) -> bool:
        return self.state == "terminated" and self.exit_code == 0

    def end(self, wall: str, exit_code: int) -> None:
        self.state, self.ready, self.started, self.exit_at = "terminated", False, False, None
        self.probe_failures, self.killed_at = (), math.inf
        self.ended, self.exit_code = wall, exit_code


def container_runs(pod: JSON) -> list[ContainerRun]:
    """Return the containers of `pod`, none of them started, in the order of the spec, init containers first."""
    spec = pod["spec"]
    inits = spec.get("initContainers") or ()
    # containers after the first keep this reason while the pod initialises
    reason = "PodInitializing" if inits else "ContainerCreating"
    runs = [
        _new_run(container, "sidecar" if container.get("restartPolicy") == "Always" else "init", "PodInitializing")
        for container in inits
    ]
    runs += [_new_run(container, "main", reason) for container in spec.get("containers") or ()]
    if "ephemeralContainers" in spec:
        runs += ephemeral_runs(spec, ())
    return runs


def ephemeral_runs(spec: JSON, known: Iterable[ContainerRun]) -> list[ContainerRun]:
    """Return the ephemeral containers of a pod that are not in `known`."""
    names = {run.name for run in known}
    new = (container for container in spec.get("ephemeralContainers") or () if container["name"] not in names)
    return [_new_run(container, "ephemeral", "ContainerCreating") for container in new]


def _new_run(container: JSON, role: Role, reason: str) -> ContainerRun:
    resources = container.get("resources")
    return ContainerRun(
        container["name"], container.get("image", ""), role, reason=reason, allocated=resources, resources=resources
    )
