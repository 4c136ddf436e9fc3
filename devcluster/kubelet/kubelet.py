"""Simulated kubelets: admit or reject pods, start, report, restart, stop and delete them.

    bound --admitted--> starting --start--> running (ready or not) --exit--> ended       deletionTimestamp, at any
      |                                        ^  | restart                     |        stage: not ready --stop-->
      +--rejected--> failed                    +--+                             |        ended --> deleted
                                                                                +-- phase Succeeded or Failed

A pod's next state depends on its object, its containers and the time only. A kubelet whose node is unreachable does
nothing until the node recovers, and then does what has become due.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from kubeloop.devcluster.kubelet.containers.container_configuration import NodeFacts, configuration_error
from kubeloop.devcluster.kubelet.pods import pod_status
from kubeloop.devcluster.kubelet.pods.pod_admission import AdmissionRejection, rejection
from kubeloop.devcluster.kubelet.pods.pod_resizes import PodResizes
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedNode, SimulatedPod
from kubeloop.devcluster.kubelet.referenced_objects import (
    Kind,
    MissingObject,
    missing_for_volumes,
    unprepared_claim,
)
from kubeloop.devcluster.simulation.node_objects import NETWORK_NOT_READY
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import CONFIG_MAPS, PODS, RESOURCE_CLAIMS, SECRETS, Resource

_PULL_BACKOFF_SECONDS = 2.0  # from ErrImagePull to ImagePullBackOff
_EARLY_REPORT_SECONDS = 0.5  # a pod with a longer start delay is reported when it is admitted
_REFERENCED: dict[Kind, Resource[Any]] = {
    "ConfigMap": CONFIG_MAPS,
    "Secret": SECRETS,
    "ResourceClaim": RESOURCE_CLAIMS,
}
_BACKED_OFF = {"ImagePullBackOff": "ErrImagePull"}  # reason -> that of the pull before it
_FIELDS = {
    "main": "containers",
    "ephemeral": "ephemeralContainers",
    "init": "initContainers",
    "sidecar": "initContainers",
}
_UNNAMED_CLAIM: tuple[Kind, str] = ("ResourceClaim", "")  # its name is missing in the status of the pod


class Kubelets:
    """Pods of all simulated nodes.

    quiet: other parts ignore the status writes. receive: is subscribed to the kinds of _REFERENCED as soon as a pod
    waits for an object, until close(); it passes their objects to object_changed().
    """

    def __init__(self, simulation: Simulation, receive: Callable[[Change], None], *, quiet: bool) -> None:
        self._simulation = simulation
        self._settings = simulation.settings
        self._quiet = quiet
        self._pods: dict[str, SimulatedPod] = {}  # by uid
        self._waiting: dict[str, SimulatedPod] = {}  # those that wait for other objects, by uid
        self._resizes = PodResizes(
            self._event,
            self._report,
            self._restart,
            self._set_timer,
            delay_seconds=simulation.settings.start_delay_seconds,
        )
        self._receive = receive
        self._unsubscribe: list[Callable[[], None]] = []

    def get(self, uid: str) -> SimulatedPod | None:
        return self._pods.get(uid)

    def close(self) -> None:
        """End the subscriptions."""
        while self._unsubscribe:
            self._unsubscribe.pop()()

    # --- from bound to admitted -------------------------------------------------------------------

    def add_pod(self, obj: JSON, node: SimulatedNode, *, staged: bool) -> None:
        """Add a pod that is bound to `node`. staged: stages of a file control it, not the kubelet."""
        pod = SimulatedPod(obj, node, settings=self._settings, rng=self._simulation.rng)
        pod.staged = staged
        self._pods[pod.uid] = pod
        if staged:
            status = obj.get("status") or {}
            pod.ended = status.get("phase") in ("Succeeded", "Failed")
            node.add(pod, counts=not pod.ended, address=status.get("podIP", ""))
        elif node.is_unreachable:
            node.add(pod, counts=False)
        else:
            self._observe(pod)

    def _observe(self, pod: SimulatedPod) -> None:
        """Admit, reject or adopt a pod that the kubelet observes for the first time."""
        obj, node = pod.object, pod.node
        status = obj.get("status") or {}
        pod.seen = True
        if status.get("phase") in ("Succeeded", "Failed"):
            node.add(pod, counts=False)
            pod.ended = True
            self._plan_stop(pod)
        elif status.get("phase") == "Running":
            pod.adopt_allocation()
            node.add(pod, address=status.get("podIP", ""))
            pod.adopt_running(self._now(), self._wall())
            self.changed(pod, obj)
            self._resizes.consider(pod, self._now())
        else:
            rejected = rejection(
                obj,
                node.object,
                pod.requests,
                used=node.used,
                allocatable=node.allocatable,
                used_ports=node.used_ports(),
                restricted=node.restricted,
            )
            if rejected is not None:
                node.add(pod, counts=False)
                self._reject(pod, rejected)
            else:
                node.add(pod)
                self._accept(pod)
        self._set_timer(pod)

    def resume(self, node: SimulatedNode) -> None:
        """Resume the pods of a node whose failure has ended."""
        for pod in list(node.pods.values()):
            current = self._current(pod)
            if current is None or pod.staged:
                continue
            pod.object = current
            if pod.start_at == math.inf:
                pod.start_at = self._now()
            if pod.seen:
                self.changed(pod, current)
                if not pod.ended:
                    self._report(pod)
            else:
                self._observe(pod)
        self._resizes.retry(node, self._now())

    def _reject(self, pod: SimulatedPod, rejected: AdmissionRejection) -> None:
        pod.ended = True
        now = self._wall()
        status = pod_status.rejected_status(pod.object, rejected.reason, rejected.message, now=now)
        self._write_status(pod, status)
        self._event(pod, "Warning", rejected.reason, rejected.message)
        self._plan_stop(pod)

    def _accept(self, pod: SimulatedPod) -> None:
        for problem in pod.problems():
            self._event(pod, "Warning", "InvalidAnnotation", problem)
        delay = pod.seconds("start-delay-seconds")
        if delay is None:
            spread = self._settings.start_delay_spread_seconds
            delay = max(0.0, self._settings.start_delay_seconds + self._simulation.rng.uniform(-spread, spread))
        now = self._now()
        pod.start_time = (pod.object.get("status") or {}).get("startTime") or self._wall()
        pod.start_at = now + delay
        pod.plan_deadline(now, self._wall())
        self._plan_stop(pod)
        if delay >= _EARLY_REPORT_SECONDS and pod.stop_at is None:
            self._report(pod)

    # --- pods: changes from outside ---------------------------------------------------------------

    def changed(self, pod: SimulatedPod, obj: JSON) -> None:
        """Apply another writer's changes of a pod: spec, annotations, conditions, deletion."""
        before = pod.object["metadata"]
        pod.object = obj
        if not pod.ended and (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            pod.ended = True  # reported by another writer; a kubelet never reverts it
            self._release(pod)
        if pod.staged or not pod.seen or pod.node.is_unreachable:
            return
        self._plan_stop(pod)
        if pod.ended:
            self._set_timer(pod)
            return
        is_new_spec = obj["spec"] != pod.spec
        if is_new_spec:
            pod.spec = obj["spec"]
            self._apply_spec(pod)
        if _UNNAMED_CLAIM in pod.missing and (obj.get("status") or {}).get("resourceClaimStatuses"):
            pod.retry(self._now())
        elif is_new_spec or _read_metadata(before) != _read_metadata(obj["metadata"]):
            self._retry_created(pod)
        if pod.start_at is None:
            pod.refresh_readiness(self._now())
            self._report(pod)
        if is_new_spec:
            self._resizes.consider(pod, self._now())
        self._set_timer(pod)

    def _apply_spec(self, pod: SimulatedPod) -> None:
        """Apply a changed deadline, start new ephemeral containers, and restart containers whose image has changed."""
        pod.plan_deadline(self._now(), self._wall())
        if pod.new_ephemeral_containers() and pod.start_at is None and pod.address and pod.stop_at is None:
            self._start_containers(pod, self._now(), self._wall())
        for run, image in pod.changed_images():
            run.image = image
            if run.state == "running":
                self._restart(pod, run, "definition changed, will be restarted")
            elif run.restart_at == math.inf:
                run.restart_at = self._now()

    def _restart(self, pod: SimulatedPod, run: pod_status.ContainerRun, why: str) -> None:
        """Stop a running container and start it again, if it can be created. why: completes the event."""
        self._event(pod, "Normal", "Killing", f"Container {run.name} {why}", run.name)
        run.end(self._wall(), 0)
        if self._refuse(pod, run):
            return
        pod.restart(run, run.image, self._now(), self._wall())
        self._started_events(pod, run)

    def _retry_created(self, pod: SimulatedPod) -> None:
        """Create the containers anew that were refused and may be created now: image, environment or mounts differ."""
        for run in pod.runs:
            if run.restart_at == math.inf and run.state == "waiting":
                problem = pod.image_problem(run)
                if problem is None or problem.reason not in (run.reason, _BACKED_OFF.get(run.reason)):
                    run.restart_at = self._now()

    def _plan_stop(self, pod: SimulatedPod) -> None:
        """Set the time at which a pod in deletion will have stopped."""
        metadata = pod.object["metadata"]
        if not metadata.get("deletionTimestamp"):
            return
        is_first = pod.stop_at is None
        # No client waits for single pods of a namespace in deletion, which has to wait for all of them.
        in_deletion = self._simulation.is_namespace_in_deletion(metadata["namespace"])
        stop_seconds = 0.0 if in_deletion else self._settings.stop_delay_seconds
        grace_seconds = float(metadata.get("deletionGracePeriodSeconds") or 0)
        pod.plan_stop(self._now(), grace_seconds, stop_seconds, hooks=not in_deletion)
        for run in pod.runs if is_first else ():
            if run.state == "running":
                self._event(pod, "Normal", "Killing", f"Stopping container {run.name}", run.name)

    # --- pods: what is due ------------------------------------------------------------------------

    def _advance(self, pod: SimulatedPod) -> None:
        """Do all that is due for the pod, report changes, and set the timer for what comes next."""
        now = self._now()
        pod.timer = None
        if pod.node.is_unreachable:
            return
        if pod.stop_at is not None:
            if now >= pod.stop_at:
                self._finish_stop(pod)
            else:
                self._set_timer(pod)
            return
        wall = self._wall()
        changed = False
        if pod.start_at is not None and now >= pod.start_at:
            pod.start_at = None
            if pod.node.is_network_unavailable and not pod.object["spec"].get("hostNetwork"):
                pod.start_at = math.inf  # until the node recovers
                self._event(pod, "Warning", "NetworkNotReady", f"network is not ready: {NETWORK_NOT_READY}")
            elif self._wait_for_volumes(pod) or self._wait_for_claim(pod):
                pod.start_at = math.inf  # until the objects are written
            else:
                self._start(pod, now, wall)
            changed = True
        if pod.pull_backoff_at is not None and now >= pod.pull_backoff_at:
            pod.pull_backoff_at = None
            self._back_off_pulling(pod)
            changed = True
        if pod.deadline_at is not None and now >= pod.deadline_at:
            pod.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline", wall)
            self._event(pod, "Normal", "DeadlineExceeded", pod.failure[1] if pod.failure else "")
            changed = True
        changed = self._exit_containers(pod, now, wall) or changed
        changed = pod.refresh_readiness(now) or changed
        if pod.resize_at is not None and now >= pod.resize_at:
            self._resizes.apply(pod)
            changed = True
        if pod.start_at is None and not pod.stopped:
            changed = self._start_containers(pod, now, wall) or changed
            if pod.has_finished:
                pod.finish(wall)
        if changed:
            self._report(pod)
        self._set_timer(pod)

    def _start(self, pod: SimulatedPod, now: float, wall: str) -> None:
        """Pull the images, which may take time."""
        pod.assign_address()
        pull_seconds = None if pod.annotation("image-pull-error") else pod.seconds("image-pull-seconds")
        if pull_seconds and pod.pull_seconds is None:
            pod.pull_seconds = pull_seconds
            pod.start_at = now + pull_seconds
            for run in pod.runs:
                self._pulling_event(pod, run)
            return

    def _start_containers(self, pod: SimulatedPod, now: float, wall: str) -> bool:
        """Start the containers whose turn it is; return True if there are any."""
        changed = False
        while runs := pod.startable():
            changed = True
            for run in runs:
                if self._refuse(pod, run):
                    continue
                pod.start(run, now, wall)
                self._started_events(pod, run)
                if run.role == "init" and run.exit_at == now:
                    self._exit(pod, run, now, wall)
        return changed

    def _exit_containers(self, pod: SimulatedPod, now: float, wall: str) -> bool:
        """Exit and restart the containers for which it is time; return True if there are any."""
        changed = False
        for run in pod.runs:
            while run.probe_failures and now >= run.probe_failures[0].seconds:
                failure, *others = run.probe_failures
                run.probe_failures = tuple(others)
                self._event(pod, "Warning", "Unhealthy", failure.message, run.name)
            if run.exit_at is not None and now >= run.exit_at:
                self._exit(pod, run, now, wall)
                changed = True
            elif now >= run.killed_at:
                self._kill(pod, run, now, wall)
                changed = True
            if run.restart_at is not None and now >= run.restart_at:
                if not self._refuse(pod, run):
                    pod.restart(run, run.image, now, wall)
                    self._started_events(pod, run)
                changed = True
        return changed

    def _exit(
        self,
        pod: SimulatedPod,
        run: pod_status.ContainerRun,
        now: float,
        wall: str,
        code: int | None = None,
    ) -> None:
        pod.exit(run, now, wall, code)
        if run.restart_at is not None and run.restart_at > now:
            self._event(pod, "Warning", "BackOff", f"Back-off restarting failed container {run.name}", run.name)

    def _kill(self, pod: SimulatedPod, run: pod_status.ContainerRun, now: float, wall: str) -> None:
        """Stop a container whose startup or liveness probe has failed, and restart it by the pod's policy."""
        restarts = (pod.object["spec"].get("restartPolicy") or "Always") != "Never"
        message = f"Container {run.name} {run.kill_cause}{', will be restarted' if restarts else ''}"
        self._event(pod, "Normal", "Killing", message, run.name)
        self._exit(pod, run, now, wall, pod_status.TERMINATED)

    # --- ConfigMaps, Secrets and ResourceClaims -------------------------------------------------------------------

    def _wait_for_volumes(self, pod: SimulatedPod) -> bool:
        """Let the pod wait for the objects of its volumes that do not exist. Returns True if there are any."""
        if pod.address:
            return False  # mounted before
        lacks = False
        for volume, missing in missing_for_volumes(pod.object, self._reader(pod)):
            lacks = True
            self._wait_for(pod, missing)
            message = f'MountVolume.SetUp failed for volume "{volume}" : {missing.message}'
            self._event(pod, "Warning", "FailedMount", message)
        return lacks

    def _wait_for_claim(self, pod: SimulatedPod) -> bool:
        """Let the pod wait for a ResourceClaim that is allocated and reserved for it. Returns True if one is not."""
        missing = None if pod.address else unprepared_claim(pod.object, self._reader(pod))
        if missing is None:
            return False
        self._wait_for(pod, missing)
        message = f"Failed to prepare dynamic resources: prepare dynamic resources: {missing.message}"
        self._event(pod, "Warning", "FailedPrepareDynamicResources", message)
        return True

    def _refuse(self, pod: SimulatedPod, run: pod_status.ContainerRun) -> bool:
        """Hold a container that has no image or cannot be configured, with the reason. Returns True if it is held."""
        problem = pod.image_problem(run)
        if problem is not None:
            pod.hold(run, problem.reason, problem.message)
            if problem.reason == "ErrImagePull":
                pod.pull_backoff_at = self._now() + _PULL_BACKOFF_SECONDS
            for type_, reason, message in problem.events:
                self._event(pod, type_, reason, message, run.name)
            return True
        container = pod.container(run.name)
        missing = configuration_error(pod.object, container, self._reader(pod), lambda: _node_facts(pod))
        if missing is None:
            return False
        if missing.kind:
            self._wait_for(pod, missing)
        pod.hold(run, "CreateContainerConfigError", missing.message)
        self._event(pod, "Normal", "Pulled", pod.pulled_text(run.image), run.name)
        self._event(pod, "Warning", "Failed", f"Error: {missing.message}", run.name)
        return True

    def _reader(self, pod: SimulatedPod) -> Callable[[Kind, str], JSON | None]:
        namespace = pod.object["metadata"]["namespace"]
        return lambda kind, name: self._simulation.store.get(_REFERENCED[kind], namespace, name)

    def _wait_for(self, pod: SimulatedPod, missing: MissingObject) -> None:
        assert missing.kind
        pod.missing.add((missing.kind, missing.name))
        self._waiting[pod.uid] = pod
        if not self._unsubscribe:
            store = self._simulation.store
            self._unsubscribe = [store.subscribe(resource, self._receive) for resource in _REFERENCED.values()]

    def object_changed(self, obj: JSON) -> None:
        """Retry the start of the pods and containers that wait for this object."""
        metadata = obj["metadata"]
        for pod in list(self._waiting.values()):
            is_same_namespace = pod.object["metadata"]["namespace"] == metadata["namespace"]
            if is_same_namespace and (obj["kind"], metadata["name"]) in pod.missing:
                del self._waiting[pod.uid]
                pod.retry(self._now())
                self._set_timer(pod)

    # --- image pulls, end -------------------------------------------------------------------------

    def _back_off_pulling(self, pod: SimulatedPod) -> None:
        for run in pod.runs:
            if run.reason == "ErrImagePull":
                run.reason = "ImagePullBackOff"
                run.message = f'Back-off pulling image "{run.image}": ErrImagePull: {run.message}'
                self._event(pod, "Normal", "BackOff", f'Back-off pulling image "{run.image}"', run.name)
                self._event(pod, "Warning", "Failed", "Error: ImagePullBackOff", run.name)

    def _finish_stop(self, pod: SimulatedPod) -> None:
        """Report the end of all containers and delete the pod, unless it has finalizers."""
        if not pod.ended:
            pod.end_stop(self._wall())
            self._report(pod)
        current = self._current(pod)
        if current is None:
            return
        if self._simulation.remove_pod(current):
            self.forget(pod.uid)
            return
        pod.ended, pod.stop_at = True, None
        self._release(pod)

    def _report(self, pod: SimulatedPod) -> None:
        """Write the pod's status if it differs from the stored one."""
        current = self._current(pod)
        if current is None:
            return
        pod.object = current
        status = pod_status.pod_status(
            current,
            pod.runs,
            now=self._wall(),
            ips=pod_status.PodIPs(pod.node.host_ip, pod.address),
            start_time=pod.start_time,
            failure=pod.failure,
            stopped=pod.stopped,
            resizes=pod.resizes,
        )
        self._write_status(pod, status)
        if status["phase"] in ("Succeeded", "Failed") and not pod.ended:
            pod.ended = True
            self._release(pod)

    # --- helpers ----------------------------------------------------------------------------------

    def forget(self, uid: str) -> SimulatedPod | None:
        """Remove the state of a pod that is deleted or whose node is."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._waiting.pop(uid, None)
            if pod.timer is not None:
                pod.timer.cancel()
            pod.node.remove(pod)
            self._resizes.room_made(pod, self._now())
        return pod

    def node_changed(self, node: SimulatedNode) -> None:
        """Apply what a changed node allows: resizes that waited for room."""
        self._resizes.retry(node, self._now())

    def node_removed(self, node: SimulatedNode) -> None:
        """Forget the resizes that wait for room on a node that is removed."""
        self._resizes.forget_node(node)

    def _release(self, pod: SimulatedPod) -> None:
        """Free the resources of a pod that has ended."""
        pod.node.release(pod)
        self._resizes.room_made(pod, self._now())

    def _current(self, pod: SimulatedPod) -> JSON | None:
        """Return the stored pod; forget one that no longer exists."""
        current = self._simulation.current_pod(pod.object)
        if current is None:
            self.forget(pod.uid)
        return current

    def _write_status(self, pod: SimulatedPod, status: JSON) -> JSON:
        current = self._current(pod) or pod.object
        if current.get("status") != status:
            current = self._simulation.update(PODS, {**current, "status": status}, quiet=self._quiet)
        pod.object = current
        return current

    def _set_timer(self, pod: SimulatedPod) -> None:
        """Set the pod's timer to the next time at which something is due."""
        if pod.timer is not None:
            pod.timer.cancel()
            pod.timer = None
        due = pod.next_due()
        if due is not None and pod.uid in self._pods:
            pod.timer = self._simulation.timers.at(due, self._advance, pod)

    def _event(self, pod: SimulatedPod, type_: str, reason: str, message: str, container: str = "") -> None:
        if self._simulation.records_events:
            role = next((run.role for run in pod.runs if run.name == container), "main")
            field = f"spec.{_FIELDS[role]}{{{container}}}" if container else ""
            self._simulation.event(pod.object, type_, reason, message, host=pod.node_name, field_path=field)

    def _pulling_event(self, pod: SimulatedPod, run: pod_status.ContainerRun) -> None:
        self._event(pod, "Normal", "Pulling", f'Pulling image "{run.image}"', run.name)

    def _started_events(self, pod: SimulatedPod, run: pod_status.ContainerRun) -> None:
        if self._simulation.records_events:
            self._event(pod, "Normal", "Pulled", pod.pulled_text(run.image), run.name)
            self._event(pod, "Normal", "Created", "Container created", run.name)
            self._event(pod, "Normal", "Started", "Container started", run.name)

    def _wall(self) -> str:
        return self._simulation.wall()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _node_facts(pod: SimulatedPod) -> NodeFacts:
    allocatable = (pod.node.object.get("status") or {}).get("allocatable") or {}
    return NodeFacts(pod.node.host_ip, pod.address, allocatable)


def _read_metadata(metadata: JSON) -> tuple[JSON | None, JSON | None]:
    """Return what decides on images, environment and mounts of containers."""
    return metadata.get("annotations"), metadata.get("labels")
