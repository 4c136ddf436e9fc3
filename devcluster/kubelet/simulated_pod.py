"""State of a simulated node and of a pod on it: running containers and due times.

Independent of store and clock; times ending in _at are seconds of the event loop's clock, `wall` is a metav1.Time.
"""

from __future__ import annotations

import ipaddress
import math
import random
from collections.abc import Iterator
from typing import Any

from kubeloop.devcluster.kubelet import crash_loop_backoff
from kubeloop.devcluster.kubelet.pod_admission import Amounts, HostPort, amounts, host_ports, requested_amounts
from kubeloop.devcluster.kubelet.simulated_pod_status import (
    CONTAINER_STATUS_UNKNOWN,
    KILLED,
    NOT_LOCATED,
    ContainerRun,
    container_runs,
    probe_seconds,
    terminated_state,
)
from kubeloop.devcluster.simulation.node_addresses import DEFAULT_MAX_PODS, host_ip, pod_cidr
from kubeloop.devcluster.simulation.node_objects import NodeSettings, failure_mode
from kubeloop.devcluster.simulation.timers import Timer
from kubeloop.kube.json_object import JSON

_PREFIX = "kubeloop.dev/"
_MIN_GRACE_SECONDS = 2.0  # kubelet's minimumGracePeriodInSeconds


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
        self.unschedulable = bool((node.get("spec") or {}).get("unschedulable"))
        status = node.get("status") or {}
        if status.get("allocatable") != self._allocatable_json:
            self._allocatable_json = status.get("allocatable")
            self.allocatable = amounts(self._allocatable_json)
        addresses = status.get("addresses") or ()
        internal = (address["address"] for address in addresses if address.get("type") == "InternalIP")
        self.host_ip = next(internal, host_ip(self.index))

    def used_ports(self) -> Iterator[HostPort]:
        for ports in self._ports.values():
            yield from ports

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
        """Update the requests of a pod whose spec has changed."""
        pod.requests = requested_amounts(pod.object)
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

    Due times, None if not due: start_at; pull_backoff_at; exit_at and restart_at of the main containers; deadline_at;
    stop_at (in deletion: all containers have stopped). timer: for the earliest of them. stop_exit_code: of containers
    that are stopped by a deletion. seen: the kubelet has observed the pod. staged: stages of a file control it, not the
    kubelet.
    """

    __slots__ = (
        "_rng",
        "_settings",
        "address",
        "backoff_restarts",
        "deadline_at",
        "ended",
        "exit_at",
        "failure",
        "key",
        "node",
        "object",
        "pull_backoff_at",
        "pull_seconds",
        "pulls_fail",
        "requests",
        "restart_at",
        "running_since",
        "runs",
        "seen",
        "spec",
        "staged",
        "start_at",
        "start_time",
        "stop_at",
        "stop_exit_code",
        "stopped",
        "timer",
        "uid",
    )

    def __init__(self, obj: JSON, node: SimulatedNode, *, settings: NodeSettings, rng: random.Random) -> None:
        metadata = obj["metadata"]
        self.object = obj
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
        self.pulls_fail = False
        self.timer: Timer | None = None
        self.pull_seconds: float | None = None  # duration of the image pulls
        self.running_since = 0.0  # loop time at which the main containers started
        self.backoff_restarts = 0  # restarts that count for the back-off
        self.start_at: float | None = None
        self.pull_backoff_at: float | None = None
        self.exit_at: float | None = None
        self.restart_at: float | None = None
        self.deadline_at: float | None = None
        self.stop_at: float | None = None
        self.stop_exit_code = 0

    @property
    def node_name(self) -> str:
        name: str = self.object["spec"].get("nodeName", "")
        return name

    def annotation(self, name: str) -> str | None:
        return marker(self.object, name)

    def _number(self, name: str) -> float | None:
        """Return an annotation as a number of 0 or more; None if it is absent or invalid."""
        text = self.annotation(name)
        if text is None:
            return None
        try:
            number = float(text)
        except ValueError:
            return None
        return number if 0 <= number < math.inf else None

    def seconds(self, name: str) -> float | None:
        """Return an annotation as seconds, with the pod's jitter; None if it is absent or invalid."""
        number = self._number(name)
        if number is None:
            return None
        jitter = self._number("jitter")
        share = self._settings.jitter if jitter is None else min(jitter, 1.0)
        if not share:
            return number
        return number * (1 + self._rng.uniform(-share, share))

    def problems(self) -> list[str]:
        """Return messages about invalid annotations, for events."""
        metadata = self.object["metadata"]
        markers = (*(metadata.get("annotations") or ()), *(metadata.get("labels") or ()))
        if not any(name.startswith(_PREFIX) for name in markers):
            return []
        numbers = ("start-delay-seconds", "stop-seconds", "run-seconds", "image-pull-seconds", "jitter", "crashes")
        problems = [
            f"{_PREFIX}{name}: {self.annotation(name)!r} is not a number of 0 or more; it is ignored"
            for name in numbers
            if self.annotation(name) is not None and self._number(name) is None
        ]
        code = self.annotation("exit-code")
        if code is not None and not (code.isdecimal() and int(code) <= 255):
            problems.append(f"{_PREFIX}exit-code: {code!r} is not a number from 0 to 255; 1 is used")
        return problems

    def pulled_text(self, image: str) -> str:
        """Return the message of the event Pulled."""
        if self.pull_seconds is None:
            return f'Container image "{image}" already present on machine and can be accessed by the pod'
        took = f"{self.pull_seconds:.3f}".rstrip("0").rstrip(".") + "s"
        return f'Successfully pulled image "{image}" in {took} ({took} including waiting).'

    @property
    def pull_error(self) -> str:
        return self.annotation("image-pull-error") or ""

    @property
    def exit_code(self) -> int:
        crashes = self._number("crashes")
        if crashes is not None and self._restarts() >= crashes:
            return 0
        code = self.annotation("exit-code") or ("0" if crashes is None else "1")
        return int(code) if code.isdecimal() and int(code) <= 255 else 1

    def _restarts(self) -> int:
        return max((run.restarts for run in self.main_runs()), default=0)

    def plan_stop(self, now: float, grace_seconds: float, stop_seconds: float) -> None:
        """Set the time at which the containers of a pod in deletion will have stopped; a repeated call may shorten it.

        stop_seconds: the default time. Containers that would take longer than the grace period are killed.
        """
        if self.stop_at is None:
            annotated = self.seconds("stop-seconds")
            delay = stop_seconds if annotated is None else annotated
            if not any(run.state == "running" for run in self.runs):
                delay = 0.0
        else:
            delay = self.stop_at - now
        if delay > max(grace_seconds, _MIN_GRACE_SECONDS):
            self.stop_exit_code = KILLED
        self.stop_at = now + min(delay, grace_seconds)

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
        times = [self.start_at, self.pull_backoff_at, self.exit_at, self.restart_at, self.deadline_at]
        for run in self.runs:
            if run.state == "running":
                if not run.started:
                    times.append(run.started_at)
                elif not run.ready and not self.is_held_unready:
                    times.append(run.ready_at)
        return min((time for time in times if time is not None and time < math.inf), default=None)

    @property
    def is_held_unready(self) -> bool:
        return self.annotation("not-ready") == "true"

    def assign_address(self) -> None:
        if not self.address:
            host = bool(self.object["spec"].get("hostNetwork"))
            self.address = self.node.host_ip if host else self.node.next_address()

    def start(self, run: ContainerRun, now: float, wall: str) -> None:
        """Start one container; an init container that is not a sidecar completes at once."""
        run.since, run.reason, run.message = wall, "", ""
        if run.role == "init":
            run.end(wall, 0)
            return
        started, ready = probe_seconds(self._container(run.name)) if self._settings.probe_delays else (0.0, 0.0)
        run.state = "running"
        run.started_at, run.ready_at = now + started, now + ready
        run.started = started == 0
        run.ready = ready == 0 and not self.is_held_unready

    def _container(self, name: str) -> JSON:
        spec = self.object["spec"]
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        return next((container for container in containers if container["name"] == name), {})

    def plan_exit(self, now: float) -> None:
        """Set the exit time of the main containers and the pod's deadline, by annotations and spec."""
        self.running_since = now
        run_seconds = self.seconds("run-seconds")
        crashes = self._number("crashes")
        if run_seconds is None and (self.annotation("exit-code") is not None or crashes is not None):
            run_seconds = 0.0
        if crashes is not None and self._restarts() >= crashes:
            run_seconds = None  # all crashes have happened
        if run_seconds is None and self._is_job_pod():
            run_seconds = self._settings.job_run_seconds
        self.exit_at = None if run_seconds is None else now + run_seconds
        deadline = self.object["spec"].get("activeDeadlineSeconds")
        if deadline is not None and self.deadline_at is None:
            self.deadline_at = now + deadline

    def _is_job_pod(self) -> bool:
        owners = self.object["metadata"].get("ownerReferences") or ()
        return any(owner.get("kind") == "Job" and owner.get("controller") for owner in owners)

    def exit(self, now: float, wall: str) -> None:
        """Exit the main containers: for good, or to be restarted after the CrashLoopBackOff delay."""
        self.exit_at = None
        code = self.exit_code
        policy = self.object["spec"].get("restartPolicy") or "Always"
        restarts = policy == "Always" or (policy == "OnFailure" and code != 0)
        for run in self.main_runs():
            run.end(wall, code)
            run.reason = ""
        if not restarts:
            self._stop_sidecars(wall)
            return
        if now - self.running_since >= crash_loop_backoff.RESET_SECONDS:
            self.backoff_restarts = 0
        delay = crash_loop_backoff.restart_delay_seconds(self.backoff_restarts)
        self.backoff_restarts += 1
        self.restart_at = now + delay
        if delay:
            for run in self.main_runs():
                run.last_state = terminated_state(self.uid, run, ended=wall, exit_code=code)
                run.state, run.reason = "waiting", "CrashLoopBackOff"
                namespace, _, name = self.key.partition("/")
                pod = f"{name}_{namespace}({self.uid})"
                run.message = crash_loop_backoff.waiting_message(delay, run.name, pod)

    def restart(self, run: ContainerRun, image: str, now: float, wall: str) -> None:
        """Start `run` again with `image`."""
        if run.state == "running":
            run.last_state = terminated_state(self.uid, run, ended=wall, exit_code=0)
        elif run.state == "terminated":
            run.last_state = terminated_state(self.uid, run, ended=run.ended, exit_code=run.exit_code)
        run.restarts += 1
        run.image = image
        self.start(run, now, wall)
        if run.role == "main":
            self.plan_exit(now)

    def changed_images(self) -> list[tuple[ContainerRun, str]]:
        """Return containers that run another image than the spec's, with the spec's."""
        changed = []
        for run in self.runs:
            container = self._container(run.name)
            if container and container.get("image", "") != run.image:
                changed.append((run, container.get("image", "")))
        return changed

    def refresh_readiness(self, now: float) -> bool:
        """Update started and ready by probes, deletion and annotations; return True if anything changed."""
        changed = False
        for run in self.runs:
            if run.state != "running":
                continue
            started = run.started or now >= run.started_at
            ready = started and self.stop_at is None and not self.is_held_unready and now >= run.ready_at
            if (started, ready) != (run.started, run.ready):
                run.started, run.ready = started, ready
                changed = True
        return changed

    def adopt_running(self, now: float, wall: str) -> None:
        """Adopt a pod that is running by its status, as a kubelet does after a restart."""
        status = self.object.get("status") or {}
        self.start_time = status.get("startTime") or wall
        if not self.address:
            self.assign_address()
        reported = {
            status_entry["name"]: status_entry
            for field in ("initContainerStatuses", "containerStatuses")
            for status_entry in status.get(field) or ()
        }
        for run in self.runs:
            entry = reported.get(run.name, {})
            run.restarts = entry.get("restartCount") or 0
            run.last_state = entry.get("lastState") or None
            since = ((entry.get("state") or {}).get("running") or {}).get("startedAt") or wall
            self.start(run, now, since)
            if entry.get("ready") and run.role != "init" and not self.is_held_unready:
                run.started = run.ready = True
                run.started_at = run.ready_at = now
        self.backoff_restarts = self._restarts()
        self.plan_exit(now)

    def fail(self, reason: str, message: str, wall: str) -> None:
        """Fail the pod and stop its containers."""
        self.failure = (reason, message)
        self.deadline_at = self.exit_at = self.restart_at = None
        self.stop_all(wall)

    def stop_all(self, wall: str) -> None:
        """Stop all containers for good."""
        for run in self.runs:
            if run.state == "running":
                run.end(wall, 0)
        self.stopped = True

    def end_stop(self, wall: str) -> None:
        """Stop all containers of a pod in deletion; the status of one that never ran is unknown, as in TerminatePod."""
        has_initialized = all(run.state == "terminated" for run in self.runs if run.role == "init")
        for run in self.runs:
            if run.state == "running":
                run.end(wall, self.stop_exit_code)
                run.reason = ""
            elif run.state == "waiting" and has_initialized:
                run.end("", KILLED)
                run.reason, run.message = CONTAINER_STATUS_UNKNOWN, NOT_LOCATED
        self.stopped = True
        self.stop_at = None

    def _stop_sidecars(self, wall: str) -> None:
        for run in self.runs:
            if run.role == "sidecar" and run.state == "running":
                run.end(wall, 0)


def _network(cidr: str, index: int) -> ipaddress.IPv4Network:
    """Return the pod network of a node; an unusable one (IPv6, too small) is replaced by the index's default."""
    try:
        network = ipaddress.IPv4Network(cidr, strict=False)
    except ValueError:
        network = None
    if network is None or network.num_addresses < 8:
        network = ipaddress.IPv4Network(pod_cidr(index, DEFAULT_MAX_PODS))
    return network
