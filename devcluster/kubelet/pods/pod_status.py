"""The status that a kubelet of v1.36 reports for a pod, computed from the state of its simulated containers.

Pure functions on plain JSON and ContainerRun records; time is an argument. Source: pkg/kubelet/status/generate.go and
kubelet_pods.go (phase, conditions), kuberuntime (container statuses).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from kubeloop.devcluster.kubelet.containers.images import image_reference
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
RESIZE_PENDING, RESIZING = "PodResizePending", "PodResizeInProgress"
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


def container_id(uid: str, run: ContainerRun, restarts: int) -> str:
    """Return the runtime's id of the container after `restarts` restarts."""
    return "containerd://" + hashlib.sha256(f"{uid}/{run.name}/{restarts}".encode()).hexdigest()


def terminated_state(uid: str, run: ContainerRun, *, ended: str, exit_code: int, reason: str = "") -> JSON:
    return {
        "terminated": {
            "containerID": container_id(uid, run, run.restarts),
            "exitCode": exit_code,
            "reason": reason or ("Completed" if exit_code == 0 else "Error"),
            "startedAt": run.since or ended,
            "finishedAt": ended,
        }
    }


def _container_status(uid: str, run: ContainerRun) -> JSON:
    image, image_id, _ = image_reference(run.image)
    alive = run.state == "running"
    status: JSON = {
        "name": run.name,
        "image": image if run.state != "waiting" or run.last_state else run.image,
        "imageID": image_id if run.state != "waiting" or run.last_state else "",
        "lastState": run.last_state or {},
        "ready": (alive and run.ready) or (run.role == "init" and run.state == "terminated" and run.exit_code == 0),
        "restartCount": run.restarts,
    }
    if run.role != "ephemeral":
        status["started"] = alive and run.started
    if alive:
        status["state"] = {"running": {"startedAt": run.since}}
        status["containerID"] = container_id(uid, run, run.restarts)
    elif run.state == "terminated" and run.reason == CONTAINER_STATUS_UNKNOWN:
        terminated = {"exitCode": run.exit_code, "reason": run.reason, "message": run.message}
        status["state"] = {"terminated": {**terminated, "startedAt": None, "finishedAt": None}}
    elif run.state == "terminated":
        status["state"] = terminated_state(uid, run, ended=run.ended, exit_code=run.exit_code, reason=run.reason)
        status["containerID"] = container_id(uid, run, run.restarts)
    else:
        waiting = {"reason": run.reason}
        if run.message:
            waiting["message"] = run.message
        status["state"] = {"waiting": waiting}
        if run.last_state:
            status["containerID"] = run.last_state["terminated"]["containerID"]
    if alive and run.resources:
        status["resources"] = run.resources
    if alive and run.allocated and run.allocated.get("requests"):
        status["allocatedResources"] = run.allocated["requests"]
    return status


def pod_phase(pod: JSON, runs: Sequence[ContainerRun], *, stopped: bool = False) -> str:
    """Return the phase by the containers. `stopped`: none will be started again."""
    mains = [run for run in runs if run.role == "main"]
    if stopped:
        return "Succeeded" if all(run.state == "terminated" and run.exit_code == 0 for run in mains) else "Failed"
    if any(run.state == "waiting" and not run.last_state for run in mains):
        return "Pending"
    if any(run.state != "terminated" for run in mains):
        return "Running"
    if pod["spec"].get("restartPolicy", "Always") == "Always":
        return "Running"
    return "Succeeded" if all(run.exit_code == 0 for run in mains) else "Failed"


def _names(runs: Sequence[ContainerRun]) -> str:
    return f"[{' '.join(run.name for run in runs)}]"  # as Go prints a list


class Resize(NamedTuple):
    """A resize that is not finished. type: of its condition. generation: of the pod whose spec asks for it."""

    type: str
    generation: int
    reason: str = ""
    message: str = ""


class _Conditions:
    """Conditions of the kubelet, in its order; a transition time changes with the status only."""

    def __init__(self, pod: JSON, now: str) -> None:
        old = (pod.get("status") or {}).get("conditions") or ()
        self.old: dict[str, JSON] = {condition["type"]: condition for condition in old}
        self._generation = pod["metadata"].get("generation", 0)
        self._now = now
        self._set: dict[str, JSON] = {}

    def set(self, type_: str, status: bool, reason: str = "", message: str = "") -> None:
        value = "True" if status else "False"
        before = self.old.get(type_)
        same = before is not None and before.get("status") == value
        condition: JSON = {
            "type": type_,
            "status": value,
            "lastProbeTime": None,
            "lastTransitionTime": before["lastTransitionTime"] if same and before else self._now,
        }
        if self._generation:
            condition["observedGeneration"] = self._generation
        if reason:
            condition["reason"] = reason
        if message:
            condition["message"] = message
        self._set[type_] = condition

    def set_resize(self, resize: Resize) -> None:
        """Set PodResizePending or PodResizeInProgress, whose transition time changes with its reason."""
        self.set(resize.type, True, resize.reason, resize.message)
        condition, before = self._set[resize.type], self.old.get(resize.type)
        if before is not None and before.get("reason", "") != resize.reason:
            condition["lastTransitionTime"] = self._now
        if resize.generation:
            condition["observedGeneration"] = resize.generation

    def all(self) -> list[JSON]:
        """Return the kubelet's conditions, then other writers' unchanged."""
        others = (
            value for key, value in self.old.items() if key not in self._set and key not in (RESIZE_PENDING, RESIZING)
        )
        return [*self._set.values(), *others]


def _set_readiness(conditions: _Conditions, pod: JSON, runs: Sequence[ContainerRun], phase: str) -> None:
    waiting_init = [
        run
        for run in runs
        if (run.role == "init" and not (run.state == "terminated" and run.exit_code == 0))
        or (run.role == "sidecar" and not run.started)
    ]
    main_ran = any(run.role == "main" and (run.state != "waiting" or run.last_state) for run in runs)
    if phase == "Succeeded":
        conditions.set("Initialized", True, "PodCompleted")
    elif waiting_init and not main_ran:
        text = f"containers with incomplete status: {_names(waiting_init)}"
        conditions.set("Initialized", False, "ContainersNotInitialized", text)
    else:
        conditions.set("Initialized", True)
    unready = [run for run in runs if run.role in ("main", "sidecar") and not (run.state == "running" and run.ready)]
    if phase in ("Succeeded", "Failed"):
        reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        conditions.set("Ready", False, reason)
        conditions.set("ContainersReady", False, reason)
    elif unready:
        text = f"containers with unready status: {_names(unready)}"
        conditions.set("Ready", False, "ContainersNotReady", text)
        conditions.set("ContainersReady", False, "ContainersNotReady", text)
    else:
        texts = []
        for gate in pod["spec"].get("readinessGates") or ():
            type_ = gate["conditionType"]
            condition = conditions.old.get(type_)
            if condition is None:
                texts.append(f'corresponding condition of pod readiness gate "{type_}" does not exist.')
            elif condition.get("status") != "True":
                texts.append(f'the status of pod readiness gate "{type_}" is not "True", but {condition.get("status")}')
        if texts:
            conditions.set("Ready", False, "ReadinessGatesNotReady", ", ".join(texts))
        else:
            conditions.set("Ready", True)
        conditions.set("ContainersReady", True)


class PodIPs(NamedTuple):
    """Addresses of a pod and its node. pod: "" while the pod has no network."""

    host: str
    pod: str


def pod_status(
    pod: JSON,
    runs: Sequence[ContainerRun],
    *,
    now: str,
    ips: PodIPs,
    start_time: str,
    failure: tuple[str, str] | None = None,
    stopped: bool = False,
    resizes: Iterable[Resize] = (),
) -> JSON:
    """Return the status of `pod`, with fields of other writers unchanged.

    start_time: used if the status has none. failure: (reason, message) of a failed pod. stopped: in deletion, all
    containers have ended for good. resizes: those that are not finished.
    """
    old: Mapping[str, Any] = pod.get("status") or {}
    spec, metadata = pod["spec"], pod["metadata"]
    phase = "Failed" if failure else pod_phase(pod, runs, stopped=stopped)
    conditions = _Conditions(pod, now)
    if phase not in ("Succeeded", "Failed"):
        for resize in resizes:
            conditions.set_resize(resize)
    conditions.set("PodReadyToStartContainers", bool(ips.pod) and phase not in ("Succeeded", "Failed"))
    _set_readiness(conditions, pod, runs, phase)
    scheduled = conditions.old.get("PodScheduled")
    if scheduled is None or scheduled.get("status") != "True":
        conditions.set("PodScheduled", True)
    status: JSON = {key: value for key, value in old.items() if key not in ("reason", "message")}
    status["phase"] = phase
    status["conditions"] = conditions.all()
    status["hostIP"] = ips.host
    status["hostIPs"] = [{"ip": ips.host}]
    status["startTime"] = old.get("startTime") or start_time
    if metadata.get("generation"):
        status["observedGeneration"] = metadata["generation"]
    if ips.pod:
        status["podIP"] = ips.pod
        status["podIPs"] = [{"ip": ips.pod}]
    if failure:
        status["reason"], status["message"] = failure
    by_name = {run.name: run for run in runs}
    uid = metadata["uid"]
    for source, field in STATUS_FIELDS.items():
        containers = spec.get(source)
        if containers:
            status[field] = [_container_status(uid, by_name[container["name"]]) for container in containers]
    return status


def rejected_status(pod: JSON, reason: str, message: str, *, now: str) -> JSON:
    """Return the status of a rejected pod: failed, no container ever ran."""
    status = {
        key: value for key, value in (pod.get("status") or {}).items() if key not in ("containerStatuses", "conditions")
    }
    conditions = _Conditions(pod, now)
    for type_ in ("Ready", "ContainersReady"):
        conditions.set(type_, False, "PodFailed")
    status.update(
        phase="Failed",
        reason=reason,
        message=f"Pod was rejected: {message}",
        startTime=now,
        conditions=conditions.all(),
    )
    if pod["metadata"].get("generation"):
        status["observedGeneration"] = pod["metadata"]["generation"]
    return status
