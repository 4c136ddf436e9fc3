"""State of a simulated node and of a pod on it: running containers and due times.

Independent of store and clock; times ending in _at are seconds of the event loop's clock, `wall` is a metav1.Time.
"""

from __future__ import annotations

import ipaddress
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubeloop.devcluster.kubelet.containers import crash_loop_backoff
from kubeloop.devcluster.kubelet.containers.container_commands import CommandEnd, command_end, container_end
from kubeloop.devcluster.kubelet.containers.images import ImageProblem, image_problem, image_reference
from kubeloop.devcluster.kubelet.containers.probes import ProbeFailure, probe_plan
from kubeloop.devcluster.kubelet.containers.restart_policy import restarts_after
from kubeloop.devcluster.kubelet.pods.pod_admission import (
    Amounts,
    HostPort,
    amounts,
    host_ports,
    is_restricted,
    requested_amounts,
)
from kubeloop.devcluster.kubelet.pods.pod_status import (
    CONTAINER_STATUS_UNKNOWN,
    KILLED,
    NOT_LOCATED,
    STATUS_FIELDS,
    TERMINATED,
    ContainerRun,
    Resize,
    container_runs,
    ephemeral_runs,
    terminated_state,
)
from kubeloop.devcluster.kubelet.pods.resource_usage import invalid_usage
from kubeloop.devcluster.kubelet.referenced_objects import Kind
from kubeloop.devcluster.simulation.node_addresses import DEFAULT_MAX_PODS, host_ip, pod_cidr
from kubeloop.devcluster.simulation.node_objects import NodeSettings, failure_mode
from kubeloop.devcluster.simulation.timers import Timer
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.integers import parse_integer
from kubeloop.kube.values.times import go_duration_seconds, parse_time, seconds_between

_PREFIX = "kubeloop.dev/"
_DURATIONS = ("start-delay-seconds", "stop-seconds", "image-pull-seconds", "jitter")
_PER_CONTAINER = ("run-seconds", "exit-code", "crashes")  # also as NAME.CONTAINER
_MIN_GRACE_SECONDS = 2.0  # kubelet's minimumGracePeriodInSeconds
_PROBED = ("main", "sidecar")  # roles of the containers that may be ready
_HELM_HOOK = "helm.sh/hook"  # annotation of a pod for whose completion Helm waits


def marker(pod: JSON, name: str) -> str | None:
    """Return the value of kubeloop's annotation, or label, of that name."""
    metadata = pod["metadata"]
    value: str | None = (metadata.get("annotations") or {}).get(_PREFIX + name)
    return value if value is not None else (metadata.get("labels") or {}).get(_PREFIX + name)


class SimulatedNode:
    """One node: capacity, pod addresses and pods.

    `used`: sum of the requests of admitted pods that have not ended.
    """

    def __init__(self, node: JSON, index: int) -> None:
        self.index = index
        self.name: str = node["metadata"]["name"]
        self.uid: str = node["metadata"]["uid"]
        self.pods: dict[str, SimulatedPod] = {}
        self.used: Amounts = {}
        self.allocatable: Amounts = {}
        self._counted: dict[str, Amounts] = {}
        self._ports: dict[str, list[HostPort]] = {}
        self._allocatable_json: Any = None
        self._addresses: set[int] = set()
        self._network = _network(node["spec"]["podCIDR"], index)
        self._last_address = 1
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

    def used_without(self, pod: SimulatedPod) -> Amounts:
        """Return what the other pods use."""
        own = self._counted.get(pod.uid, {})
        return {name: value - own.get(name, 0) for name, value in self.used.items()}

    def add(self, pod: SimulatedPod, *, counts: bool = True, address: str = "") -> None:
        """Add `pod`. counts: count its requests and ports as used. address: its address, "" if it has none yet."""
        self.pods[pod.uid] = pod
        if counts:
            self._count(pod)
        if address:
            pod.address = address
            self._addresses.add(self._offset(address))

    def _count(self, pod: SimulatedPod) -> None:
        self._counted[pod.uid] = pod.requests
        for name, value in pod.requests.items():
            self.used[name] = self.used.get(name, 0) + value
        ports = host_ports(pod.object)
        if ports:
            self._ports[pod.uid] = ports

    def recount(self, pod: SimulatedPod) -> None:
        """Update the requests of a pod whose allocated resources have changed."""
        pod.requests = requested_amounts(pod.allocated_object())
        if pod.uid in self._counted:
            self.release(pod)
            self._count(pod)

    def release(self, pod: SimulatedPod) -> None:
        """Free the resources of a pod that has ended."""
        for name, value in self._counted.pop(pod.uid, {}).items():
            self.used[name] -= value
        self._ports.pop(pod.uid, None)

    def remove(self, pod: SimulatedPod) -> None:
        """Remove a deleted pod and free its address."""
        self.release(pod)
        self.pods.pop(pod.uid, None)
        if pod.address:
            self._addresses.discard(self._offset(pod.address))

    def _offset(self, address: str) -> int:
        """Return an address' offset in the node's network; 0, which no pod has, for other networks."""
        try:
            number = int(ipaddress.IPv4Address(address)) - int(self._network.network_address)
        except ValueError:  # IPv6, or not an address
            return 0
        return number if 0 < number < self._network.num_addresses else 0

    def next_address(self) -> str:
        """Return the next free address of the node's pod network."""
        size = self._network.num_addresses
        for _ in range(size):
            self._last_address = self._last_address + 1 if self._last_address < size - 2 else 2
            if self._last_address not in self._addresses:
                break
        self._addresses.add(self._last_address)
        return str(self._network.network_address + self._last_address)


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
        "_marker_values",
        "_rng",
        "_settings",
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
        self._marked: tuple[JSON | None, JSON | None] = (None, None)  # of which _marker_values are
        self._marker_values: dict[str, str] = {}
        self.spec: JSON = obj["spec"]  # last applied; `object` may be newer
        self.uid: str = metadata["uid"]
        self.key = f"{metadata['namespace']}/{metadata['name']}"
        self.node = node
        self._settings = settings
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
    def node_name(self) -> str:
        name: str = self.object["spec"].get("nodeName", "")
        return name

    def annotation(self, name: str) -> str | None:
        """Return the value of kubeloop's annotation, or label, of that name."""
        return self._markers().get(name)

    def _markers(self) -> Mapping[str, str]:
        """Return the values of kubeloop's annotations and labels by name; most pods have none."""
        metadata = self.object["metadata"]
        annotations, labels = metadata.get("annotations"), metadata.get("labels")
        if annotations is not self._marked[0] or labels is not self._marked[1]:
            self._marked = annotations, labels
            self._marker_values = {
                key.removeprefix(_PREFIX): values[key]
                for values in (labels, annotations)
                for key in values or ()
                if key.startswith(_PREFIX)
            }
        return self._marker_values

    def _container_annotation(self, name: str, run: ContainerRun) -> str | None:
        """Return the annotation of one container; without it, main containers have the pod's."""
        markers = self._markers()
        if not markers:
            return None
        value = markers.get(f"{name}.{run.name}")
        return markers.get(name) if value is None and run.role == "main" else value

    def _jittered(self, seconds: float | None) -> float | None:
        if seconds is None:
            return None
        jitter = _number(self.annotation("jitter"))
        share = self._settings.jitter if jitter is None else min(jitter, 1.0)
        return seconds * (1 + self._rng.uniform(-share, share)) if share else seconds

    def seconds(self, name: str) -> float | None:
        """Return an annotation as seconds, with the pod's jitter; None if it is absent or invalid."""
        text = self.annotation(name)
        return None if text is None else self._jittered(_number(text))

    def problems(self) -> list[str]:
        """Return messages about invalid annotations, for events."""
        return [*self._invalid_markers(), *invalid_usage(self.object)]

    def _invalid_markers(self) -> list[str]:
        if not self._markers():
            return []
        metadata = self.object["metadata"]
        keys = dict.fromkeys((*(metadata.get("annotations") or ()), *(metadata.get("labels") or ())))
        problems = []
        for key in keys:
            if not key.startswith(_PREFIX):
                continue
            name, dot, container = key.removeprefix(_PREFIX).partition(".")
            value = self.annotation(key.removeprefix(_PREFIX))
            if dot and (name not in _PER_CONTAINER or not self.container(container)):
                problems.append(f"{key}: the pod has no such container; it is ignored")
            elif name == "exit-code":
                if _exit_code(value) is None:
                    problems.append(f"{key}: {value!r} is not a number from 0 to 255; 1 is used")
            elif name in (*_DURATIONS, *_PER_CONTAINER) and _number(value) is None:
                problems.append(f"{key}: {value!r} is not a number of 0 or more; it is ignored")
        return problems

    def pulled_text(self, image: str) -> str:
        """Return the message of the event Pulled."""
        if self.pull_seconds is None:
            return f'Container image "{image}" already present on machine and can be accessed by the pod'
        took = f"{self.pull_seconds:.3f}".rstrip("0").rstrip(".") + "s"
        return f'Successfully pulled image "{image}" in {took} ({took} including waiting).'

    def image_problem(self, run: ContainerRun) -> ImageProblem | None:
        """Return why the container has no image, None if it has one."""
        if not self._markers() and not self._settings.missing_images and not image_reference(run.image).error:
            return None
        policy = self.container(run.name).get("imagePullPolicy", "")
        return image_problem(
            run.image, policy, self.annotation("image-pull-error") or "", self._settings.missing_images
        )

    def exit_code(self, run: ContainerRun) -> int:
        """Return the code with which a container will exit."""
        crashes = self._crashes(run)
        if crashes is not None and run.restarts >= crashes:
            return 0
        text = self._container_annotation("exit-code", run)
        if text is not None:
            code = _exit_code(text)
            return 1 if code is None else code
        if crashes is not None:
            return 1
        end = self._command_end(run) if self._container_annotation("run-seconds", run) is None else None
        return 0 if end is None else end.exit_code

    def _command_end(self, run: ContainerRun) -> CommandEnd | None:
        return container_end(self.container(run.name)) if self._settings.command_exits else None

    def _crashes(self, run: ContainerRun) -> float | None:
        return _number(self._container_annotation("crashes", run))

    def plan_stop(self, now: float, grace_seconds: float, stop_seconds: float, *, hooks: bool = True) -> None:
        """Set the time at which the containers of a pod in deletion will have stopped; a repeated call may shorten it.

        stop_seconds: the default time after the preStop hooks, which run if `hooks` is set. Containers that would take
        longer than the grace period are killed.
        """
        if self.stop_at is not None and grace_seconds >= self.grace_seconds:
            return
        self.grace_seconds = grace_seconds
        if self.stop_at is not None:
            delay = self.stop_at - now
        else:
            delay, grace_seconds = self._stop_delay(grace_seconds, stop_seconds, hooks=hooks)
        if delay > max(grace_seconds, _MIN_GRACE_SECONDS):
            self.is_killed = True
        self.stop_at = now + min(delay, grace_seconds)

    def _stop_delay(self, grace_seconds: float, stop_seconds: float, *, hooks: bool) -> tuple[float, float]:
        """Return (seconds that the containers take, seconds that they have), both with preStop hooks.

        After a hook, a container has at least the minimum grace period.
        """
        running = [run for run in self.runs if run.state == "running"]
        if not running:
            return 0.0, grace_seconds
        annotated = self.seconds("stop-seconds")
        if annotated is not None:
            return annotated, grace_seconds
        hook = max(_hook_seconds(self.container(run.name)) for run in running) if hooks else 0.0
        hook = min(hook, grace_seconds)
        return hook + stop_seconds, max(grace_seconds, hook + _MIN_GRACE_SECONDS) if hook else grace_seconds

    def main_runs(self) -> list[ContainerRun]:
        return [run for run in self.runs if run.role == "main"]

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
            if run.state == "running" and run.role in _PROBED:
                if not run.started:
                    times.append(run.started_at)
                elif not run.ready and not self.is_held_unready:
                    times.append(run.ready_at)
                times.append(run.killed_at)
                times += (failure.seconds for failure in run.probe_failures)
        return min((time for time in times if time is not None and time < math.inf), default=None)

    @property
    def is_held_unready(self) -> bool:
        return self.annotation("not-ready") == "true"

    def assign_address(self) -> None:
        if not self.address:
            host = bool(self.object["spec"].get("hostNetwork"))
            self.address = self.node.host_ip if host else self.node.next_address()

    def startable(self) -> list[ContainerRun]:
        """Return the containers to start now: ephemeral ones at any time, init containers one by one, sidecars once
        those before them are started, then all others."""
        waiting = [run for run in self.runs if run.state == "waiting" and run.restart_at is None]
        if not waiting:
            return []
        if ephemeral := [run for run in waiting if run.role == "ephemeral"]:
            return ephemeral
        for run in self.runs:
            if run.role == "main":
                break
            if run.state == "waiting" and run.restart_at is None:
                return [run]
            has_initialized = run.started if run.role == "sidecar" else run.state == "terminated" and not run.exit_code
            if not has_initialized:
                return []
        return waiting

    def start(self, run: ContainerRun, now: float, wall: str) -> None:
        """Start one container, and set when it will exit."""
        run.since, run.reason, run.message = wall, "", ""
        run.state, run.running_at, run.resources = "running", now, run.allocated
        run_seconds = self._run_seconds(run)
        run.exit_at = None if run_seconds is None else now + run_seconds
        if run.role not in _PROBED:
            run.started = True
            return
        settings = self._settings
        plan = probe_plan(self.container(run.name), delays=settings.probe_delays, commands=settings.command_exits)
        run.started_at, run.ready_at = now + plan.started, now + plan.ready
        run.started = plan.started == 0
        run.ready = plan.ready == 0 and not self.is_held_unready
        if plan.failures:
            run.probe_failures = tuple(
                ProbeFailure(now + failure.seconds, failure.message) for failure in plan.failures
            )
            run.killed_at, run.kill_cause = now + plan.killed, plan.cause

    def _run_seconds(self, run: ContainerRun) -> float | None:
        """Return the seconds after which a started container exits; None if it does not exit.

        After its crashes, a container exits only if it then completes: it is not restarted.
        """
        crashes = self._crashes(run)
        text = self._container_annotation("run-seconds", run)
        seconds = None if text is None else self._jittered(_number(text))
        if crashes is None or run.restarts < crashes:
            if seconds is not None:
                return seconds
            if crashes is not None or self._container_annotation("exit-code", run) is not None:
                return 0.0
            if (end := self._command_end(run)) is not None:
                return end.seconds if end.seconds < math.inf else None
        elif seconds is not None and not self._restarts_after(run, 0):
            return seconds
        if run.role == "init":
            return 0.0
        return self._jittered(self._settings.job_run_seconds) if self._completes(run) else None

    def _completes(self, run: ContainerRun) -> bool:
        """Return True for a container that exits by itself although nothing says how.

        Those are the containers of Jobs; interactive ephemeral containers, which read the end of their input; and of
        pods without a controller the interactive ones, those of Helm's hooks, and all by the settings.
        """
        if run.role == "ephemeral":
            return bool(self.container(run.name).get("stdin"))
        if run.role != "main":
            return False
        metadata = self.object["metadata"]
        controller = next((owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), None)
        if controller is not None:
            return bool(controller.get("kind") == "Job")
        if (self.object["spec"].get("restartPolicy") or "Always") == "Always":
            return False
        is_hook = _HELM_HOOK in (metadata.get("annotations") or ())
        return self._settings.complete_bare_pods or is_hook or bool(self.container(run.name).get("stdin"))

    def _restarts_after(self, run: ContainerRun, code: int) -> bool:
        policy = self.object["spec"].get("restartPolicy") or "Always"
        is_init = run.role == "init"
        return run.role != "ephemeral" and restarts_after(self.container(run.name), code, policy, is_init=is_init)

    def container(self, name: str) -> JSON:
        """Return the container of any kind from the spec, {} if there is none."""
        spec = self.object["spec"]
        if spec is not self._container_spec:
            self._container_spec = spec
            self._containers = {
                container["name"]: container for field in STATUS_FIELDS for container in spec.get(field) or ()
            }
        return self._containers.get(name, {})

    def plan_deadline(self, now: float, wall: str) -> None:
        """Set the time of activeDeadlineSeconds, which counts from status.startTime."""
        deadline = self.object["spec"].get("activeDeadlineSeconds")
        if deadline is None:
            self.deadline_at = None
            return
        elapsed = seconds_between(parse_time(self.start_time), parse_time(wall))
        self.deadline_at = now + go_duration_seconds(deadline) - elapsed

    def exit(self, run: ContainerRun, now: float, wall: str, code: int | None = None) -> None:
        """Exit a container: for good, or to be restarted after the CrashLoopBackOff delay. code: None for its own."""
        if code is None:
            code = self.exit_code(run)
        run.end(wall, code)
        run.reason = ""
        if not self._restarts_after(run, code):
            return
        if now - run.running_at >= crash_loop_backoff.RESET_SECONDS:
            run.backoff_restarts = 0
        delay = crash_loop_backoff.restart_delay_seconds(run.backoff_restarts)
        run.backoff_restarts += 1
        run.restart_at = now + delay
        if delay:
            run.last_state = terminated_state(self.uid, run, ended=wall, exit_code=code)
            run.state, run.reason = "waiting", "CrashLoopBackOff"
            namespace, _, name = self.key.partition("/")
            pod = f"{name}_{namespace}({self.uid})"
            run.message = crash_loop_backoff.waiting_message(delay, run.name, pod)

    @property
    def has_finished(self) -> bool:
        """True if the main containers have ended for good, or will not start because an init container has failed."""
        is_complete = True
        for run in self.runs:
            has_ended = run.state == "terminated" and run.restart_at is None
            if run.role == "init" and has_ended and run.exit_code:
                return True
            if run.role == "main" and not has_ended:
                is_complete = False
        return is_complete

    def finish(self, wall: str) -> None:
        """Stop the other containers of a pod whose main containers have ended for good."""
        for run in self.runs:
            run.restart_at = None
            if run.role in ("sidecar", "ephemeral") and run.state == "running":
                run.end(wall, 0)
        self.stopped = True

    def hold(self, run: ContainerRun, reason: str, message: str) -> None:
        """Let a container that cannot be created wait for retry()."""
        self._keep_last_state(run)
        run.state, run.reason, run.message, run.restart_at = "waiting", reason, message, math.inf

    def retry(self, now: float) -> None:
        """Attempt again to start the pod, and its containers that could not be created."""
        self.missing.clear()
        if self.start_at == math.inf:
            self.start_at = now
        for run in self.runs:
            if run.restart_at == math.inf:
                run.restart_at = now

    def _keep_last_state(self, run: ContainerRun) -> None:
        if run.state == "terminated":
            run.last_state = terminated_state(self.uid, run, ended=run.ended, exit_code=run.exit_code)

    def restart(self, run: ContainerRun, image: str, now: float, wall: str) -> None:
        """Start `run` again with `image`, or for the first time after hold()."""
        if run.state == "running":
            run.last_state = terminated_state(self.uid, run, ended=wall, exit_code=0)
        self._keep_last_state(run)
        if run.since or run.last_state:
            run.restarts += 1
        run.image, run.restart_at = image, None
        self.start(run, now, wall)

    def changed_images(self) -> list[tuple[ContainerRun, str]]:
        """Return containers that run another image than the spec's, with the spec's."""
        changed = []
        for run in self.runs:
            container = self.container(run.name)
            if container and container.get("image", "") != run.image:
                changed.append((run, container.get("image", "")))
        return changed

    def refresh_readiness(self, now: float) -> bool:
        """Update started and ready by probes, deletion and annotations; return True if anything changed."""
        changed = False
        for run in self.runs:
            if run.state != "running" or run.role not in _PROBED:
                continue
            started = run.started or now >= run.started_at
            ready = started and self.stop_at is None and not self.is_held_unready and now >= run.ready_at
            if (started, ready) != (run.started, run.ready):
                run.started, run.ready = started, ready
                changed = True
        return changed

    def new_ephemeral_containers(self) -> bool:
        """Add the ephemeral containers that the spec has in addition; return True if there are any."""
        added = ephemeral_runs(self.object["spec"], self.runs) if "ephemeralContainers" in self.object["spec"] else []
        self.runs += added
        return bool(added)

    # --- in-place resize --------------------------------------------------------------------------

    @property
    def resizes(self) -> Sequence[Resize]:
        """Return the resizes that are not finished."""
        if self.deferred is self.resizing is None:
            return ()
        return [resize for resize in (self.deferred, self.resizing) if resize is not None]

    def wants_resize(self) -> bool:
        """Return True if the spec has other resources than those that are allocated."""
        spec = self.object["spec"]
        return (spec.get("resources") or {}) != (self.allocated or {}) or any(
            (self.container(run.name).get("resources") or {}) != (run.allocated or {}) for run in self.runs
        )

    def allocate(self) -> None:
        """Allocate the resources of the spec."""
        self.allocated = self.object["spec"].get("resources")
        for run in self.runs:
            run.allocated = self.container(run.name).get("resources")

    def allocated_object(self) -> JSON:
        """Return the pod with its allocated resources in the spec."""
        spec, by_name = self.object["spec"], {run.name: run.allocated for run in self.runs}
        if not self.wants_resize():
            return self.object
        changed = {
            field: [{**container, "resources": by_name.get(container["name"]) or {}} for container in spec[field]]
            for field in ("containers", "initContainers")
            if spec.get(field)
        }
        if self.allocated is not None:
            changed["resources"] = self.allocated  # type: ignore[assignment] # an object, unlike the other fields
        return {**self.object, "spec": {**spec, **changed}}

    def adopt_allocation(self) -> None:
        """Allocate what the status says, as a kubelet reads from its checkpoint after a restart."""
        status = self.object.get("status") or {}
        runs = {run.name: run for run in self.runs}
        for field in STATUS_FIELDS.values():
            for entry in status.get(field) or ():
                run, requests = runs.get(entry["name"]), entry.get("allocatedResources")
                if run is not None and requests:
                    run.allocated = {**(entry.get("resources") or run.allocated or {}), "requests": requests}
        self.requests = requested_amounts(self.allocated_object())

    def adopt_running(self, now: float, wall: str) -> None:
        """Adopt a pod that is running by its status, as a kubelet does after a restart."""
        status = self.object.get("status") or {}
        self.start_time = status.get("startTime") or wall
        if not self.address:
            self.assign_address()
        reported = {
            status_entry["name"]: status_entry
            for field in STATUS_FIELDS.values()
            for status_entry in status.get(field) or ()
        }
        for run in self.runs:
            self._adopt_container(run, reported.get(run.name, {}), now, wall)
        self.plan_deadline(now, wall)

    def _adopt_container(self, run: ContainerRun, entry: JSON, now: float, wall: str) -> None:
        run.restarts = run.backoff_restarts = entry.get("restartCount") or 0
        run.last_state = entry.get("lastState") or None
        state = entry.get("state") or {}
        if terminated := state.get("terminated"):
            run.since, run.reason = terminated.get("startedAt") or "", terminated.get("reason", "")
            run.end(terminated.get("finishedAt") or wall, terminated.get("exitCode", 0))
            return
        if (waiting := state.get("waiting")) and run.last_state:
            run.reason, run.message = waiting.get("reason", ""), waiting.get("message", "")
            run.restart_at = now + crash_loop_backoff.restart_delay_seconds(run.restarts)
            return
        if (waiting and run.role == "main") or (run.role == "ephemeral" and "running" not in state):
            return
        self.start(run, now, (state.get("running") or {}).get("startedAt") or wall)
        if entry.get("ready") and run.role != "init" and not self.is_held_unready:
            run.started = run.ready = True
            run.started_at = run.ready_at = now

    def fail(self, reason: str, message: str, wall: str) -> None:
        """Fail the pod and stop its containers."""
        self.failure = (reason, message)
        self.start_at = self.pull_backoff_at = self.deadline_at = None
        self.end_stop(wall)

    def end_stop(self, wall: str) -> None:
        """Stop all containers of a pod in deletion or past its deadline.

        One that would have exited by itself does not succeed; the status of one that never ran is unknown, as in
        TerminatePod.
        """
        has_initialized = all(run.state == "terminated" for run in self.runs if run.role == "init")
        for run in self.runs:
            run.restart_at = None
            if run.state == "running":
                run.end(wall, KILLED if self.is_killed else 0 if run.exit_at is None else TERMINATED)
                run.reason = ""
            elif run.state == "waiting" and has_initialized:
                run.end("", KILLED)
                run.reason, run.message = CONTAINER_STATUS_UNKNOWN, NOT_LOCATED
        self.stopped = True
        self.stop_at = None


def _hook_seconds(container: JSON) -> float:
    """Return the duration of the container's preStop hook: that of `sleep`, or of a command that says it."""
    hook = (container.get("lifecycle") or {}).get("preStop")
    if not hook:
        return 0.0
    if "sleep" in hook:
        return float(hook["sleep"].get("seconds") or 0)
    end = command_end(tuple((hook.get("exec") or {}).get("command") or ()))
    return 0.0 if end is None else end.seconds


def _number(text: str | None) -> float | None:
    """Return an annotation as a number of 0 or more; None if it is absent or invalid."""
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


def _exit_code(text: str | None) -> int | None:
    code = parse_integer(text) if text is not None and text.isdecimal() else 256
    return code if code <= 255 else None


def _network(cidr: str, index: int) -> ipaddress.IPv4Network:
    """Return the pod network of a node; an unusable one (IPv6, too small) is replaced by the index's default."""
    try:
        network = ipaddress.IPv4Network(cidr, strict=False)
    except ValueError:
        network = None
    if network is None or network.num_addresses < 8:
        network = ipaddress.IPv4Network(pod_cidr(index, DEFAULT_MAX_PODS))
    return network
